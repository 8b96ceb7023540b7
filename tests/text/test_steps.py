"""Each step on small text, compared with Moses' scripts and fairseq's recipes; and the command line of the steps."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.lines import check_files, read_lines
from fairseq_plugins.tools.text import description, markup, moses, parallel, steps, subwords
from fairseq_plugins.tools.text.__main__ import STEPS, main
from fairseq_plugins.tools.text.moses import detokeniser, tokeniser
from fairseq_plugins.tools.text.steps import detokenise, tokenise
from fairseq_plugins.tools.text.words import joined, lower_case, straightened
from tests.refusals import refused
from tests.scripts.archives import TED_SETS
from tests.texts import read, write


def made(step: Callable[..., object], *files: object, **options: object) -> list[str]:
    """The lines that a step writes to its last file."""
    step(*files, **options)
    return read(Path(str(files[-1])))


# ---- the command line --------------------------------------------------------------------------------------------


def test_every_step_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for step in STEPS:
        with pytest.raises(SystemExit):
            main([step, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: python -m fairseq_plugins.tools.text {step}")
    assert main(["--help"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == list(STEPS)


def test_a_command_line_does_what_the_call_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = write(tmp_path / "a file", ["„Gut“, sagt er…", "Ende z.B."])
    words = ["tokenise", "--language", "de", "--normalise", "--no-escape", "--workers", "2", raw, raw, tmp_path / "out"]
    assert main([str(word) for word in words]) == 0
    tokenise([raw, raw], tmp_path / "called", language="de", normalise=True, escape=False)
    assert read(tmp_path / "out") == read(tmp_path / "called")
    assert read(tmp_path / "called")[:2] == ['" Gut " , sagt er ...', "Ende z.B ."]
    pair = write(tmp_path / "b.de", ["a b"]), write(tmp_path / "b.en", ["a b"])
    outputs = [tmp_path / name for name in ("c.de", "c.en", "kept")]
    assert main(["clean", "--ratio", "1.5", *map(str, [*pair, *outputs])]) == 0
    assert capsys.readouterr().out == "kept 1 of 1 pairs\n"


# ---- characters --------------------------------------------------------------------------------------------------


def test_punctuation_gets_the_form_that_moses_gives_it() -> None:
    # The right-hand sides follow the rules of normalize-punctuation.perl by hand.
    german, english = moses.normaliser("de"), moses.normaliser("en")
    assert german("„Ja“, sagte er – und ging…") == '"Ja", sagte er - und ging...'
    assert german('Er sagte: "Ja."') == 'Er sagte: "Ja".'
    assert german("10 % ( 5 ) «nein»") == '10% (5) "nein"'
    assert german("3\u00a0000") == "3,000"
    assert english("3\u00a0000") == "3.000"
    assert english('"Yes", he said') == '"Yes," he said'
    assert english("a lone ’ but don’t") == "a lone \" but don't"


def test_control_characters_become_spaces_and_small_letters_are_perls() -> None:
    # Category C: control, format (zero-width space, byte order mark), private use; not the soft sign of category L.
    assert moses.without_control_characters("a\u0007b\u200bc\ufeffd\ue000e\u044cf") == "a b c d e\u044cf"
    assert moses.without_control_characters("nothing\u00a0to do") == "nothing\u00a0to do"
    assert lower_case("ÄÖÜ STRASSE ẞ ΟΔΟΣ İ") == "äöü strasse ß οδοσ i̇"
    assert straightened("It’s „it“.") == "It's „it“."


# ---- tokens ------------------------------------------------------------------------------------------------------


def test_tokens_are_those_of_moses() -> None:
    split = tokeniser("en")
    tokens = "Don &apos;t &quot; quote &quot; &#91; me &#93; &amp; co , 5,000 times ."
    assert split('Don\'t "quote" [me] & co, 5,000 times.') == tokens
    assert tokeniser("en", escape=False)("It's a well-known [fact].") == "It 's a well-known [ fact ] ."
    assert tokeniser("en", aggressive=True)("well-known") == "well @-@ known"
    assert tokeniser("de", lower_case=True)("Dr. Müller") == "dr. müller"


def test_tokens_of_other_languages_are_those_of_moses() -> None:
    # tokenizer.perl (Moses 3445289) prints these; sacremoses alone splits most otherwise.
    for language, sentence, tokens in (
        ("fi", "Hän on EU:n: EU:ssa 3:sta 12:30.", "Hän on EU:n : EU:ssa 3:sta 12 : 30 ."),
        ("sv", "EU:s regler och FN:s råd.", "EU:s regler och FN:s råd ."),
        ("zh", "价格是3.5元。", "价格是3.5元 。"),
        ("en", "The word 北京 is Beijing; 서울 is Seoul.", "The word 北京 is Beijing ; 서울 is Seoul ."),
        ("de", "Das Wort 北京ist EU:n.", "Das Wort 北京ist EU : n ."),
        ("ko", "산다.산다. Python을 사용한다.", "산다.산다. Python을 사용한다 ."),
        ("en", "It is in the U.S.", "It is in the U.S ."),
        ("en", "The U.S. is here etc.", "The U.S. is here etc ."),
        ("en", ".", "."),
        ("en", "Wait...", "Wait ..."),
        ("en", "", ""),
    ):
        assert tokeniser(language)(sentence) == tokens
        if language in ("fi", "sv"):
            assert detokeniser(language)(tokens).startswith(sentence[:12])


def test_a_line_stays_one_line() -> None:
    ends = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\u00a0i"
    assert tokeniser("en", "none")(ends) == "a b c d e f g h i"
    for kind in ("moses", "none"):
        assert "".join(tokeniser("en", kind)(ends).split()) == "abcdefghi"


def test_detokenising_undoes_tokenising() -> None:
    for language, sentence in (
        ("de", 'Er sagte: "Das kostet 5,50 Euro (fünf) & mehr!" [Lachen]'),
        ("en", 'He said: "It doesn\'t cost 5.50 (five) & more!" 1 < 2 | [laughter]'),
        ("fr", "L'homme, qu'on a vu, n'est pas là."),
    ):
        assert detokeniser(language)(tokeniser(language)(sentence)) == sentence


def test_truecasing_is_learned_from_text_that_is_truecased(tmp_path: Path) -> None:
    lines = ("the house of Anna is old .", "Anna saw the &quot; New York &quot; .", "&quot; So &quot; .")
    model = tmp_path / "model"
    steps.learn_truecaser(write(tmp_path / "text", lines), model)
    new = write(tmp_path / "new", ["The house .", "Anna . &quot; The Old &quot; NEW York .", "THE unknown Word | x"])
    # truecase.perl: best case at the beginning of a sentence and for words in a case not seen, others as they are.
    expected = ["the house .", "Anna . &quot; the old &quot; New York .", "the unknown Word | x"]
    assert made(steps.truecase, new, tmp_path / "true", model=model, workers=2) == expected
    # No letter of "So" counted: a capital at the beginning of a sentence tells nothing.
    assert "so" not in model.read_text().lower().split()
    plain = partial(made, detokenise, tmp_path / "true", tmp_path / "plain", language="en")
    assert (plain(recase=True)[0], plain()[0]) == ("The house.", "the house.")
    for bad, problem in ((new, "not a model of Moses' truecaser"), (tmp_path / "no", "no such file or directory")):
        assert refused(steps.truecase, new, tmp_path / "x", model=bad) == f"{bad}: {problem}"


# ---- parallel files ----------------------------------------------------------------------------------------------


def test_the_limits_are_those_of_clean_corpus_n() -> None:
    for source, target, expected in (
        (3, 2, None),
        (2, 3, None),
        (175, 175, None),
        (176, 175, "with more than 175 tokens"),
        (175, 176, "with more than 175 tokens"),
        (4, 2, "with one side more than 1.5 times as long as the other"),
        (2, 4, "with one side more than 1.5 times as long as the other"),
        (1, 2, "with fewer than 2 tokens"),
        (0, 3, "with an empty side"),
        (3, 0, "with an empty side"),
    ):
        assert parallel.fault([["a"] * source, ["b"] * target], 2, 175, 1.5) == expected
    assert parallel.fault([["ä" * 1000], ["b"]], 1, 250, 9) is None
    assert parallel.fault([["b"], ["ä" * 1001]], 1, 250, 9) == "with a token of more than 1000 characters"


def test_cleaning_says_what_went_and_keeps_the_numbers(tmp_path: Path) -> None:
    source = write(tmp_path / "a.de", [" eins  zwei ", "", "drei", "lang lang lang lang", "vier"])
    target = write(tmp_path / "a.en", ["one two", "x", "three", "l", "four four"])
    outputs, kept = (tmp_path / "b.de", tmp_path / "b.en"), tmp_path / "kept"
    assert parallel.clean((source, target), outputs, kept, max_length=3, ratio=1.5) == (
        "kept 2 of 5 pairs; dropped: 1 with an empty side, 1 with more than 3 tokens, "
        "1 with one side more than 1.5 times as long as the other"
    )
    assert [read(path) for path in (*outputs, kept)] == [["eins zwei", "drei"], ["one two", "three"], ["1", "3"]]
    unequal = write(tmp_path / "c.de", ["a b c d"]), write(tmp_path / "c.en", ["a"])
    none = (tmp_path / "x", tmp_path / "y")
    assert refused(parallel.clean, unequal, none, tmp_path / "z", ratio=2) == (
        f"{unequal[0]}: no pair is left after cleaning: 1 with one side more than 2 times as long as the other"
    )
    assert not any(path.exists() for path in none)


def apart(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two lists of words are at most one word apart, by the definition."""
    removed = [[*words[:place], *words[place + 1 :]] for words in (one, other) for place in range(len(words))]
    if len(one) == len(other):
        return sum(ours != theirs for ours, theirs in zip(one, other, strict=True)) <= 1
    return list(min(one, other, key=len)) in removed and abs(len(one) - len(other)) == 1


FEW = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)


@given(one=FEW, other=FEW)
def test_lines_share_a_pattern_if_they_are_a_word_apart_and_only_then(one: list[str], other: list[str]) -> None:
    patterns = [set(parallel._one_word_open(" ".join(words))) for words in (one, other)]
    assert bool(patterns[0] & patterns[1]) == apart(one, other)


def test_near_copies_of_training_pairs_leave_both_sides(tmp_path: Path) -> None:
    training = write(tmp_path / "t.de", ["Er schläft."]), write(tmp_path / "t.en", ["He is asleep now."])
    german = ["Sie schläft!", "Er schläft noch", "Ein Haus ist hier", "Ein Hund schläft hier", "..."]
    english = ["A b c d.", "E f g h.", "HE is, asleep", "A dog sleeps", "no words there"]
    held_out = write(tmp_path / "v.de", german), write(tmp_path / "v.en", english)
    outputs = tmp_path / "o.de", tmp_path / "o.en"
    said = parallel.drop_near_copies(training, held_out, outputs)
    assert said == f"{held_out[0]}: kept 2 of 5 pairs; the others are near copies of training pairs"
    assert [read(path) for path in outputs] == [["Ein Hund schläft hier", "..."], ["A dog sleeps", "no words there"]]
    assert refused(parallel.drop_near_copies, training, training, outputs) == (
        f"{training[0]}: every pair is at most one word apart from a training pair"
    )


@pytest.mark.parametrize("every", [2, 3, 23])
def test_every_nth_line_goes(tmp_path: Path, every: int) -> None:
    lines = [str(number) for number in range(1, 70)]
    text, rest, taken = write(tmp_path / "text", lines), tmp_path / "rest", tmp_path / "taken"
    parallel.split(text, rest, taken, every=every)
    assert read(taken) == [line for line in lines if int(line) % every == 0]
    assert read(rest) == [line for line in lines if int(line) % every != 0]
    assert made(parallel.select_every, [text], tmp_path / "same", every=every) == read(taken)
    assert made(parallel.select, [text], tmp_path / "others", lines=rest) == read(rest)


def test_columns_are_taken_apart(tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs", ["eins\tone", "\ttwo ", "drei\x85\tthree"])
    parallel.columns(pairs, [tmp_path / "de", tmp_path / "en"])
    assert [read(tmp_path / "de"), read(tmp_path / "en")] == [["eins", "", "drei\x85"], ["one", "two ", "three"]]


def test_checking_counts_pairs_and_blank_ones(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.de", ["a", "", "c", " "]), write(tmp_path / "a.en", ["a", "b", "", "d"])
    assert check_files([one, two]) == f"{one} {two}: 4 lines each, 3 blank"
    blank = write(tmp_path / "blank", ["", "\t", "\u2028", ""])
    assert refused(check_files, [one, blank]) == f"{blank}: all lines are blank"


# ---- subwords ----------------------------------------------------------------------------------------------------

WORDS = "low low low low low lower lower newest newest newest newest newest newest widest widest widest"
"""The example of the paper on byte-pair encoding (Sennrich et al., 2016, algorithm 1)."""


def test_the_most_frequent_pairs_are_merged_first(tmp_path: Path) -> None:
    # "est" ends newest and widest, 9 times; "lo" begins low and lower, 7 times; "ne", "ew" and "we" are in newest only.
    text = write(tmp_path / "text", [WORDS])
    codes = made(subwords.learn_merges, [text], tmp_path / "codes", merges=3)
    assert codes == ["#version: 0.2", "s t</w>", "e st</w>", "l o"]


def test_byte_pair_encoding_is_undone_by_joining_and_rare_subwords_are_split(tmp_path: Path) -> None:
    text, codes, cut = write(tmp_path / "text", [WORDS, "", " newer  lowest "]), tmp_path / "codes", tmp_path / "cut"
    assert subwords.learn_merges([text], codes, merges=4) == "4 merges"
    subwords.apply_bpe(text, cut, codes=codes, workers=2)
    assert made(subwords.join_subwords, cut, tmp_path / "joined", kind="bpe") == [WORDS, "", " newer lowest "]
    assert joined("ei@@ ns , zw@@ ei z@@", "bpe") == "eins , zwei z"
    assert subwords.learn_merges([text], tmp_path / "more", merges=999).endswith(" merges (no pair is left for 999)")
    subwords.learn_merges([write(text, [WORDS])], codes, merges=10)
    assert "low" in made(subwords.apply_bpe, text, cut, codes=codes)[0].split()
    vocabulary = tmp_path / "vocabulary"
    counted = write(tmp_path / "counted", ["b a b", "", "c"])
    assert subwords.write_vocabulary(counted, vocabulary) == f"{counted}: 4 tokens, 3 types"
    assert read(vocabulary) == ["b 2", "a 1", "c 1"]
    subwords.write_vocabulary(cut, vocabulary)
    for threshold, whole in ((5, True), (6, False)):
        split = made(subwords.apply_bpe, text, cut, codes=codes, vocabulary=vocabulary, threshold=threshold)
        assert ("low" in split[0].split()) == whole


def test_what_cannot_be_learned_or_applied(tmp_path: Path) -> None:
    text = write(tmp_path / "text", ["a b c"])
    said = refused(subwords.learn_merges, [text], tmp_path / "x", merges=5)
    assert said == f"{text}: no subwords to learn: no pair of letters occurs twice"
    for content in ("#version: 0.2\na b c\n", "nonsense\n", "#version: x\n"):
        codes = write(tmp_path / "codes", content.splitlines())
        assert refused(subwords.apply_bpe, text, tmp_path / "x", codes=codes).startswith(f"{codes}: not BPE codes: ")
    said = refused(subwords.learn_pieces, [text], tmp_path / "x", size=9000)
    assert said.startswith(f"{text}: SentencePiece cannot learn 9000 pieces: ")
    assert refused(subwords.apply_pieces, text, tmp_path / "x", model=text) == f"{text}: not a SentencePiece model"


def test_sentencepiece_is_undone_by_joining_and_learns_the_same_again(tmp_path: Path) -> None:
    lines = [f"The number {number} is written as {number * 7} here." for number in range(200)]
    text, models = write(tmp_path / "text", lines), [tmp_path / "model", tmp_path / "again"]
    for model in models:
        subwords.learn_pieces([text], model, size=60)
    assert models[0].read_bytes() == models[1].read_bytes()
    subwords.apply_pieces(text, tmp_path / "cut", model=models[0], workers=2)
    assert made(subwords.join_subwords, tmp_path / "cut", tmp_path / "joined", kind="sentencepiece") == lines


def test_marks_of_subwords_are_refused_and_a_stray_one_is_not(tmp_path: Path) -> None:
    stray = write(tmp_path / "stray.de", [*["a plain line"] * 300, "an @@ in a mail", "▁"])
    description.require_no_marks([stray])
    for mark, line in (("@@ ", "sub@@ words"), ("▁", "▁sub words")):
        path = write(tmp_path / "cut.de", [*["a plain line"] * 300, *[line] * 9])
        assert refused(description.require_no_marks, [stray, path]) == (
            f"{path}: contains '{mark}', a subword mark: set --given-subwords to bpe, sentencepiece or none, and "
            "--given-tokeniser moses if its words are Moses' tokens"
        )


# ---- every step --------------------------------------------------------------------------------------------------

LINE_BY_LINE: Sequence[Callable[..., object]] = (
    lambda path, output: tokenise([path], output, language="de"),
    lambda path, output: steps.normalise([path], output, language="de"),
    lambda path, output: detokenise(path, output, language="de"),
    steps.straighten,
)


def test_bad_bytes_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("gut so\nschön\n".encode("latin-1"))
    said = [refused(step, path, tmp_path / "out") for step in LINE_BY_LINE]
    assert set(said) == {f"{path}: line 2: not UTF-8 (byte 0xf6)"}
    assert list(tmp_path.iterdir()) == [path]


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_no_step_changes_the_number_of_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("steps") / "text", lines)
    for step in LINE_BY_LINE:
        step(path, path.with_name("out"))
        assert path.with_name("out").read_bytes().count(b"\n") == len(lines)


@pytest.mark.parametrize("language", ["de", "en"])
def test_tokens_and_subwords_of_iwslt14_are_the_published_bytes(real_corpus, language: str, tmp_path: Path) -> None:
    """The archive's XML gives the tokens that Moses' Perl made, the published merges give the subwords."""
    published = real_corpus("iwslt14_deen")
    files = [published / "orig_xml" / f"IWSLT14.{name}.de-en.{language}.xml" for name in TED_SETS]
    raw = [sentence.replace("’", "'") for path in files for sentence in markup.segments(path)]
    assert len(raw) == 6750
    tokens = write(tmp_path / "tokens", map(tokeniser(language, lower_case=True), raw))
    assert tokens.read_bytes() == (published / f"test.tok.{language}").read_bytes()
    bpe = subwords.load_bpe(published / "code")
    for split in ("valid", "test"):
        cut = write(tmp_path / split, map(bpe.process_line, read_lines(published / f"{split}.tok.{language}")))
        assert cut.read_bytes() == (published / f"{split}.{language}").read_bytes()
