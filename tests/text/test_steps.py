"""Each step on small text, compared with Moses' scripts and fairseq's recipes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.text import bpe
from fairseq_plugins.text.__main__ import STEPS, main
from fairseq_plugins.text.clean import Limits
from fairseq_plugins.text.lower_case import lower_case
from fairseq_plugins.text.normalise import normaliser, without_control_characters
from fairseq_plugins.text.ted import segments, training_sentences
from fairseq_plugins.text.tokenise import Tokenisation, detokeniser, one_space


class Bench:
    """A directory in which steps are run, text in and text out."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def file(self, name: str, *lines: str) -> str:
        path = self.directory / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        return str(path)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def lines(self, name: str) -> list[str]:
        return (self.directory / name).read_text(encoding="utf-8").split("\n")[:-1]

    def run(self, *argv: str) -> str:
        """The output of a successful step."""
        code = main(argv)
        printed = self._capsys.readouterr()
        assert (code, printed.err) == (0, "")
        return printed.out

    def refused(self, *argv: str) -> str:
        """The one-line error of a step."""
        code = main(argv)
        printed = self._capsys.readouterr()
        assert (code, printed.out) == (2, "")
        [line] = printed.err.removesuffix("\n").split("\n")
        return line.removeprefix("error: ")


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.delenv("MOSES", raising=False)
    return Bench(tmp_path, capsys)


# ---- the table ---------------------------------------------------------------------------------------------------


def test_a_misspelt_step_gets_the_nearest_one(bench: Bench) -> None:
    assert bench.refused("tokenize").startswith("unknown step 'tokenize' (did you mean 'tokenise'?); legal values: ")
    assert bench.refused().startswith("no step given; one of: ")


@pytest.mark.parametrize("step", STEPS)
def test_every_step_explains_itself(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([step, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


# ---- TED ---------------------------------------------------------------------------------------------------------

TAGS = [
    "<url>http://www.ted.com/talks/lang/de/x.html</url>",
    "<keywords>talks, arts</keywords>",
    "<speaker>A B</speaker>",
    "<talkid>1</talkid>",
    "<title>A B: Titel</title>",
    "<description>TED Talk Subtitles</description>",
    " Ein Satz & noch einer. ",
]


def test_titles_and_descriptions_of_talks_are_sentences() -> None:
    kept = ["<speaker>A B</speaker>", "A B: Titel", "TED Talk Subtitles", " Ein Satz & noch einer. "]
    assert list(training_sentences(TAGS)) == kept


def test_segments_are_cut_out_of_xml() -> None:
    xml = ["<doc>", '<seg id="1"> Es geht’s gut. </seg>', "<title>x</title>", '<seg id="12">Ja. </seg> ', "</doc>"]
    assert list(segments(xml)) == ["Es geht’s gut.", "Ja."]
    assert list(segments(xml, straight_apostrophes=True)) == ["Es geht's gut.", "Ja."]


def test_a_file_without_sentences_is_refused(bench: Bench) -> None:
    tags = bench.file("tags", *TAGS[:1])
    assert bench.refused("ted", "--xml", tags, bench.path("out")) == f"{tags}: contains no sentence"
    assert not Path(bench.path("out")).exists()
    refused = bench.refused("ted", "--tags", "--straight-apostrophes", tags, bench.path("out"))
    assert refused == "--straight-apostrophes needs --xml"


# ---- characters --------------------------------------------------------------------------------------------------


def test_punctuation_gets_the_form_that_moses_gives_it() -> None:
    # The right-hand sides follow the rules of normalize-punctuation.perl by hand.
    normalise = normaliser("de")
    assert normalise("„Ja“, sagte er – und ging…") == '"Ja", sagte er - und ging...'
    assert normalise('Er sagte: "Ja."') == 'Er sagte: "Ja".'
    assert normalise("10 % ( 5 ) «nein»") == '10% (5) "nein"'
    assert normalise("3\u00a0000") == "3,000"
    assert normaliser("en")("3\u00a0000") == "3.000"
    assert normaliser("en")('"Yes", he said') == '"Yes," he said'
    assert normaliser("en")("a lone ’ but don’t") == "a lone \" but don't"


def test_control_characters_become_spaces() -> None:
    # Category C: control, format (zero-width space, byte order mark), private use; not the soft sign of category L.
    assert without_control_characters("a\u0007b\u200bc\ufeffd\ue000e\u044cf") == "a b c d e\u044cf"
    assert without_control_characters("nothing\u00a0to do") == "nothing\u00a0to do"


def test_small_letters_are_perls() -> None:
    assert lower_case("ÄÖÜ STRASSE ẞ ΟΔΟΣ İ") == "äöü strasse ß οδοσ i̇"


# ---- tokens ------------------------------------------------------------------------------------------------------


def test_tokens_are_those_of_moses() -> None:
    split = Tokenisation("en").transform()
    assert split('Don\'t "quote" [me] & co, 5,000 times.') == (
        "Don &apos;t &quot; quote &quot; &#91; me &#93; &amp; co , 5,000 times ."
    )
    assert Tokenisation("en", escape=False).transform()("It's a well-known [fact].") == "It 's a well-known [ fact ] ."
    assert Tokenisation("en", aggressive=True).transform()("well-known") == "well @-@ known"
    assert Tokenisation("de", lower_case=True).transform()("Dr. Müller") == "dr. müller"


@pytest.mark.parametrize(
    ("language", "sentence", "tokens"),
    [
        # As tokenizer.perl (Moses 3445289) prints them; sacremoses alone splits each otherwise.
        ("fi", "Hän on EU:n: EU:ssa 3:sta 12:30.", "Hän on EU:n : EU:ssa 3:sta 12 : 30 ."),
        ("sv", "EU:s regler och FN:s råd.", "EU:s regler och FN:s råd ."),
        ("zh", "价格是3.5元。", "价格是3.5元 。"),
        pytest.param("ja", "Pythonを使う。", "Pythonを使う 。", marks=pytest.mark.slow),
        ("en", "The word 北京 is Beijing; 서울 is Seoul.", "The word 北京 is Beijing ; 서울 is Seoul ."),
        ("de", "Das Wort 北京ist EU:n.", "Das Wort 北京ist EU : n ."),
        ("ko", "산다.산다. Python을 사용한다.", "산다.산다. Python을 사용한다 ."),
    ],
)
def test_tokens_of_other_languages_are_those_of_moses(language: str, sentence: str, tokens: str) -> None:
    assert Tokenisation(language).transform()(sentence) == tokens
    if language in ("fi", "sv"):
        assert detokeniser(language)(tokens).startswith(sentence[:12])


def test_the_last_full_stop_is_split_off_an_abbreviation() -> None:
    split = Tokenisation("en").transform()
    assert split("It is in the U.S.") == "It is in the U.S ."
    assert split("The U.S. is here etc.") == "The U.S. is here etc ."
    assert split(".") == "."
    assert split("Wait...") == "Wait ..."
    assert split("") == ""


def test_a_line_stays_one_line() -> None:
    ends = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\u00a0i"
    assert one_space(ends) == "a b c d e f g h i"
    for kind in ("moses", "none"):
        assert "".join(Tokenisation("en", kind).transform()(ends).split()) == "abcdefghi"


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("de", 'Er sagte: "Das kostet 5,50 Euro (fünf) & mehr!" [Lachen]'),
        ("en", 'He said: "It doesn\'t cost 5.50 (five) & more!" 1 < 2 | [laughter]'),
        ("fr", "L'homme, qu'on a vu, n'est pas là."),
    ],
)
def test_detokenising_undoes_tokenising(language: str, sentence: str) -> None:
    assert detokeniser(language)(Tokenisation(language).transform()(sentence)) == sentence


def test_the_steps_are_commands(bench: Bench) -> None:
    raw = bench.file("raw", "„Gut“, sagt \u2028 er…", "", "Ende z.B.")
    bench.run("tokenise", "--language", "de", "--normalise", "--lower-case", "--workers", "2", raw, bench.path("tok"))
    assert bench.lines("tok") == ["&quot; gut &quot; , sagt er ...", "", "ende z.b ."]
    bench.run("detokenise", "--language", "de", bench.path("tok"), bench.path("back"))
    assert bench.lines("back")[0] == '"gut", sagt er...'
    bench.run("lower-case", raw, raw, bench.path("low"))
    assert bench.lines("low")[2:4] == ["ende z.b.", "„gut“, sagt \u2028 er…"]
    bench.run("normalise", "--language", "de", raw, bench.path("norm"))
    assert bench.lines("norm")[0] == '"Gut", sagt \u2028 er...'


def test_perl_is_looked_for_where_moses_is_said_to_be(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOSES", bench.path("nowhere"))
    assert bench.refused("tokenise", "--language", "de", bench.file("raw", "a"), bench.path("tok")) == (
        f"MOSES={bench.path('nowhere')}: contains neither tokenizer/tokenizer.perl nor scripts/tokenizer/tokenizer.perl"
    )


# ---- cleaning and splitting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
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
    ],
)
def test_the_limits_are_those_of_clean_corpus_n(source: int, target: int, fault: str | None) -> None:
    assert Limits(2, 175, 1.5).fault(["a"] * source, ["b"] * target) == fault


def test_a_token_of_more_than_1000_characters_goes() -> None:
    assert Limits().fault(["ä" * 1000], ["b"]) is None
    assert Limits().fault(["b"], ["ä" * 1001]) == "with a token of more than 1000 characters"


def test_cleaning_says_what_went_and_keeps_the_numbers(bench: Bench) -> None:
    source = bench.file("a.de", " eins  zwei ", "", "drei", "lang lang lang lang", "vier")
    target = bench.file("a.en", "one two", "x", "three", "l", "four four")
    outputs = [bench.path(name) for name in ("b.de", "b.en", "kept")]
    printed = bench.run("clean", "--max", "3", "--ratio", "1.5", source, target, *outputs)
    assert printed == (
        "kept 2 of 5 pairs; dropped: 1 with an empty side, 1 with more than 3 tokens, "
        "1 with one side more than 1.5 times as long as the other\n"
    )
    assert bench.lines("b.de") == ["eins zwei", "drei"]
    assert bench.lines("b.en") == ["one two", "three"]
    assert bench.lines("kept") == ["1", "3"]


def test_nothing_left_after_cleaning_is_refused(bench: Bench) -> None:
    source, target = bench.file("a.de", "a b c d"), bench.file("a.en", "a")
    outputs = [bench.path(name) for name in ("b.de", "b.en", "kept")]
    assert bench.refused("clean", "--ratio", "2", source, target, *outputs) == (
        f"{source}: no pair is left after cleaning: 1 with one side more than 2 times as long as the other"
    )
    assert sorted(path.name for path in bench.directory.iterdir()) == ["a.de", "a.en"]


@pytest.mark.parametrize("every", [2, 3, 23])
def test_every_nth_line_goes(bench: Bench, every: int) -> None:
    lines = [str(number) for number in range(1, 70)]
    text = bench.file("text", *lines)
    bench.run("split", "--every", str(every), text, bench.path("rest"), bench.path("taken"))
    assert bench.lines("taken") == [line for line in lines if int(line) % every == 0]
    assert bench.lines("rest") == [line for line in lines if int(line) % every != 0]
    bench.run("select", "--every", str(every), text, bench.path("same"))
    assert bench.lines("same") == bench.lines("taken")
    bench.run("select", "--lines", bench.path("rest"), text, bench.path("others"))
    assert bench.lines("others") == bench.lines("rest")


def test_a_split_leaves_something_on_both_sides(bench: Bench) -> None:
    text = bench.file("text", "a", "b")
    for every in ("1", "3"):
        refused = bench.refused("split", "--every", every, text, bench.path("rest"), bench.path("taken"))
        assert refused == f"{text}: 2 lines cannot be split at every {every}th: one part would be empty"


def test_a_line_that_is_not_there_cannot_be_selected(bench: Bench) -> None:
    text, numbers = bench.file("text", "a", "b"), bench.file("numbers", "2", "3")
    refused = bench.refused("select", "--lines", numbers, text, bench.path("out"))
    assert refused == f"{text}: has no line 3, which is in {numbers}"


def test_checking_counts_pairs_and_blank_ones(bench: Bench) -> None:
    one, two = bench.file("a.de", "a", "", "c", " "), bench.file("a.en", "a", "b", "", "d")
    assert bench.run("check", one, two) == f"{one} {two}: 4 lines each, 3 blank\n"
    blank = bench.file("blank", "", "\t", "\u2028", "")
    assert bench.refused("check", one, blank) == f"{blank}: all lines are blank"


# ---- subwords ----------------------------------------------------------------------------------------------------


def test_columns_are_taken_apart(bench: Bench) -> None:
    text = bench.file("pairs", "eins\tone", "\ttwo ", "drei\x85\tthree")
    bench.run("columns", text, bench.path("de"), bench.path("en"))
    assert (bench.lines("de"), bench.lines("en")) == (["eins", "", "drei\x85"], ["one", "two ", "three"])
    bad = bench.file("bad", "eins\tone", "zwei")
    assert bench.refused("columns", bad, bench.path("x"), bench.path("y")) == f"{bad}: line 2 has 1 columns, not 2"
    assert not Path(bench.path("x")).exists()


def test_truecasing_is_learned_from_text_that_is_truecased(bench: Bench) -> None:
    lines = ("the house of Anna is old .", "Anna saw the &quot; New York &quot; .", "&quot; So &quot; .")
    text = bench.file("text", *lines)
    bench.run("learn-truecaser", text, bench.path("model"))
    new = bench.file("new", "The house .", "Anna . &quot; The Old &quot; NEW York .", "THE unknown Word | x")
    bench.run("truecase", "--model", bench.path("model"), "--workers", "2", new, bench.path("true"))
    # As truecase.perl: best case at the beginning of a sentence and for words in a case not seen, others as they are.
    assert bench.lines("true") == ["the house .", "Anna . &quot; the old &quot; New York .", "the unknown Word | x"]
    # No letter of "So" counted: a capital at the beginning of a sentence tells nothing.
    assert "so" not in Path(bench.path("model")).read_text().lower().split()
    bench.run("detokenise", "--language", "en", "--recase", bench.path("true"), bench.path("plain"))
    assert bench.lines("plain")[0] == "The house."
    bench.run("detokenise", "--language", "en", bench.path("true"), bench.path("small"))
    assert bench.lines("small")[0] == "the house."


def test_what_is_no_truecaser_is_refused(bench: Bench) -> None:
    text = bench.file("text", "a b c")
    options = ("truecase", "--model")
    assert bench.refused(*options, text, text, bench.path("x")) == f"{text}: not a model of Moses' truecaser"
    absent = bench.path("no")
    assert bench.refused(*options, absent, text, bench.path("x")) == f"{absent}: no such file or directory"


WORDS = "low low low low low lower lower newest newest newest newest newest newest widest widest widest"
"""The example of the paper on byte-pair encoding (Sennrich et al., 2016, algorithm 1)."""


def test_the_most_frequent_pairs_are_merged_first() -> None:
    # "est" ends newest and widest, 9 times; "lo" begins low and lower, 7 times; "ne", "ew" and "we" are in newest only.
    assert bpe.learn([WORDS], 3, "text") == ["#version: 0.2", "s t</w>", "e st</w>", "l o"]


def test_byte_pair_encoding_is_undone_by_joining(bench: Bench) -> None:
    text = bench.file("text", WORDS, "", " newer  lowest ")
    assert bench.run("learn-bpe", "--merges", "4", text, bench.path("codes")) == "4 merges\n"
    bench.run("apply-bpe", "--codes", bench.path("codes"), "--workers", "2", text, bench.path("bpe"))
    joined = [line.replace("@@ ", "") for line in bench.lines("bpe")]
    assert joined == [WORDS, "", " newer lowest "]
    assert bench.run("learn-bpe", "--merges", "999", text, bench.path("more")).endswith("(no pair is left for 999)\n")


def test_rare_subwords_are_split_further(bench: Bench) -> None:
    text = bench.file("text", WORDS)
    bench.run("learn-bpe", "--merges", "10", text, bench.path("codes"))
    bench.run("apply-bpe", "--codes", bench.path("codes"), text, bench.path("bpe"))
    assert "low" in bench.lines("bpe")[0].split()
    bench.run("count", bench.path("bpe"), "--vocabulary", bench.path("vocabulary"))
    options = ["--codes", bench.path("codes"), "--vocabulary", bench.path("vocabulary"), "--threshold"]
    bench.run("apply-bpe", *options, "5", text, bench.path("common"))
    bench.run("apply-bpe", *options, "6", text, bench.path("rare"))
    assert "low" in bench.lines("common")[0].split()
    assert "low" not in bench.lines("rare")[0].split()


@pytest.mark.parametrize("content", ["#version: 0.2\na b c\n", "nonsense\n", "#version: x\n"])
def test_what_is_no_file_of_merges_is_refused(bench: Bench, content: str) -> None:
    codes = bench.file("codes", *content.splitlines())
    refused = bench.refused("apply-bpe", "--codes", codes, bench.file("text", "a"), bench.path("out"))
    assert refused.startswith(f"{codes}: not BPE codes: ")


def test_text_without_subwords_is_refused(bench: Bench) -> None:
    text = bench.file("text", "a b c")
    refused = bench.refused("learn-bpe", "--merges", "5", text, bench.path("codes"))
    assert refused.startswith(f"{text}: no subwords to learn: ")


def test_sentencepiece_is_undone_by_joining(bench: Bench) -> None:
    lines = [f"The number {number} is written as {number * 7} here." for number in range(200)]
    text = bench.file("text", *lines)
    bench.run("learn-sentencepiece", "--size", "60", text, bench.path("model"))
    bench.run("apply-sentencepiece", "--model", bench.path("model"), "--workers", "2", text, bench.path("pieces"))
    assert [line.replace(" ", "").replace("▁", " ").strip() for line in bench.lines("pieces")] == lines
    first = Path(bench.path("model")).read_bytes()
    bench.run("learn-sentencepiece", "--size", "60", text, bench.path("model"))
    assert Path(bench.path("model")).read_bytes() == first
    refused = bench.refused("learn-sentencepiece", "--size", "9000", text, bench.path("big"))
    assert refused.startswith(f"{text}: SentencePiece cannot learn 9000 pieces: ")
    assert bench.refused("apply-sentencepiece", "--model", text, text, bench.path("x")) == (
        f"{text}: not a SentencePiece model"
    )


def test_counts_are_those_of_the_text(bench: Bench) -> None:
    text = bench.file("text", "b a b", "", "c")
    assert bench.run("count", text, "--vocabulary", bench.path("types")) == f"{text}: 3 lines, 4 tokens, 3 types\n"
    assert bench.lines("types") == ["b 2", "a 1", "c 1"]


# ---- every step --------------------------------------------------------------------------------------------------

ONE_IN_ONE_OUT: Sequence[Sequence[str]] = (
    ["tokenise", "--language", "de"],
    ["tokenise", "--language", "de", "--workers", "2"],
    ["detokenise", "--language", "de"],
    ["normalise", "--language", "de"],
    ["lower-case"],
    ["ted", "--tags"],
    ["learn-bpe", "--merges", "5"],
    ["learn-sentencepiece", "--size", "9"],
)


@pytest.mark.parametrize("step", ONE_IN_ONE_OUT, ids=" ".join)
def test_bad_bytes_are_refused_and_nothing_is_written(bench: Bench, step: list[str]) -> None:
    path = bench.directory / "text"
    path.write_bytes("gut so\nschön\n".encode("latin-1"))
    assert bench.refused(*step, str(path), bench.path("out")) == f"{path}: line 2: not UTF-8 (byte 0xf6)"
    assert list(bench.directory.iterdir()) == [path]


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_no_step_changes_the_number_of_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("steps") / "text"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    for step in islice(ONE_IN_ONE_OUT, 5):
        if "--workers" not in step:
            out = path.with_name("out")
            assert main([*step, str(path), str(out)]) == 0
            assert out.read_bytes().count(b"\n") == len(lines)


@pytest.mark.parametrize(("kind", "line"), [("bpe", "ei@@ ns , zw@@ ei z@@"), ("sentencepiece", "▁ei ns ▁, ▁zw ei ▁z")])
def test_subwords_are_joined(bench: Bench, kind: str, line: str) -> None:
    bench.run("join-subwords", "--kind", kind, bench.file("cut", line), bench.path("joined"))
    assert bench.lines("joined") == ["eins , zwei z"]


def test_straight_apostrophes(bench: Bench) -> None:
    bench.run("straighten", bench.file("one", "It’s „it“."), bench.path("two"))
    assert bench.lines("two") == ["It's „it“."]
