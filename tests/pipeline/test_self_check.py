"""The check before an evaluation: it finds prepared references that differ from the published ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary, indexed_dataset

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines
from fairseq_plugins.pipeline.self_check import References, Result, checked, write_check
from fairseq_plugins.text.bytes import tokens_of
from fairseq_plugins.text.description import Description, describe, described
from fairseq_plugins.text.markup import segments
from fairseq_plugins.text.normalise import normaliser
from fairseq_plugins.text.tokenise import tokeniser
from tests.scripts.archives import write_archives
from tests.scripts.running import run
from tests.speech_to_text import audio

PUBLISHED = [
    "He said that it's a well-known fact, didn't he?",
    "Nobody (but Mr. Smith) had 5,000 apples & pears.",
    "The „Grub“ isn't on the map; it's a village.",
    "She doesn't know what isn't known: that's life.",
]


def write(path: Path, lines: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def binarise(prefix: Path, dictionary: Path, lines: Sequence[str], known: Sequence[str] | None = None) -> None:
    """Binarise ``lines`` with a dictionary of the words of ``known``, by default their own."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    words = Dictionary()
    for word in " ".join(lines if known is None else known).split():
        words.add_symbol(word)
    words.save(str(dictionary))
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(words))
    for line in lines:
        builder.add_item(words.encode_line(line, add_if_not_exist=False))
    builder.finalize(f"{prefix}.idx")


def prepared(
    place: Path,
    published: Sequence[str] = PUBLISHED,
    lines: Sequence[str] | None = None,
    known: Sequence[str] | None = None,
    **how: Any,
) -> References:
    """A test set whose references are binarised as ``lines``: by default as Moses' tokens of the published ones."""
    tokenise = tokeniser("en")
    text = [tokenise(line) for line in published] if lines is None else lines
    write(place / "text" / "test.en", text)
    binarise(place / "data-bin" / "test.de-en.en", place / "data-bin" / "dict.en.txt", text, known)
    raw = write(place / "raw" / "test.en", published)
    return References(
        place, place / "data-bin", "test", "test", raw, "de", "en", Description(**{"tokeniser": "moses", **how})
    )


def refusal(kind: str, references: References) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        checked(kind, references)
    return caught.value.problems


def test_tokens_put_together_are_the_published_text(tmp_path):
    assert checked("translation", prepared(tmp_path)) == Result(lines=4, differing=0, bleu=100.0)


def test_tokens_that_are_not_put_together_are_seen_although_bleu_splits_punctuation_off_itself(tmp_path):
    plain = ["A dog runs.", "Nobody sings, but she does.", "Where is it?"]
    found = refusal("translation", prepared(tmp_path, plain, tokeniser="none"))
    assert (
        "a perfect translation would have 100.00 BLEU (at least 99 is expected), and 3 of 3 lines would differ"
        in found[0]
    )
    assert found[1:] == (
        "line 1: prepared 'A dog runs .', published 'A dog runs.'",
        "line 2: prepared 'Nobody sings , but she does .', published 'Nobody sings, but she does.'",
        "line 3: prepared 'Where is it ?', published 'Where is it?'",
    )


@pytest.mark.parametrize(
    ("made", "how", "words"),
    [
        (str.lower, {"lower_case": True}, "lower case"),
        (lambda line: line.replace("’", "'"), {"changed": {"test": ["apostrophes"]}}, "' for ’"),
        (normaliser("en"), {"changed": {"test": ["punctuation"]}}, "normalised punctuation"),
    ],
)
def test_a_known_difference_is_allowed_for_by_name_and_only_where_it_is_written_down(tmp_path, made, how, words):
    published = PUBLISHED
    if words == "' for ’":
        published = [line.replace("'", "’") for line in PUBLISHED]
    if words == "normalised punctuation":
        published = [f"„{line}“" for line in PUBLISHED]
    tokenise: Callable[[str], str] = tokeniser("en")
    lines = [tokenise(made(line)) for line in published]
    result = checked("translation", prepared(tmp_path / "said", published, lines, **how))
    assert result.bleu is not None
    assert result.bleu >= 99
    assert result.allowed == (f"published text with {words}",)
    [problem, *examples] = refusal("translation", prepared(tmp_path / "unsaid", published, lines))
    assert f" ({result.bleu:.2f} BLEU with {words}, which text.json does not mention)" in problem
    assert len(examples) == 3


def test_a_known_difference_hides_no_other(tmp_path):
    lower = [tokeniser("en")(line.lower()) for line in PUBLISHED]
    # What is not in lower case was not made so by the preparation.
    mixed = [lower[0].upper(), *lower[1:]]
    found = refusal("translation", prepared(tmp_path, lines=mixed, lower_case=True))
    assert "1 of 4 lines would differ" in found[0]
    assert len(found) == 2


def test_truecased_text_has_the_capitals_of_its_sentences_again(tmp_path):
    tokenise = tokeniser("en")
    # Moses' truecaser takes a colon for the end of a sentence.
    published = PUBLISHED[:3]
    truecased = [tokenise(line[0].lower() + line[1:]) for line in published]
    result = checked("translation", prepared(tmp_path / "said", published, truecased, truecased=True))
    assert result == Result(3, 0, 100.0, ("truecased text, compared without case (100.00 BLEU with it)",))
    unsaid = prepared(tmp_path / "unsaid", published, truecased)
    assert "3 of 3 lines would differ" in refusal("translation", unsaid)[0]
    # Lower case is more than that, and what was lost does not come back.
    titles = ["The Old Man And The Sea", *published]
    lower = prepared(tmp_path / "lower", titles, [tokenise(line.lower()) for line in titles], truecased=True)
    assert "BLEU with case: the capitals of truecased text were not restored" in refusal("translation", lower)[0]


def all_but(*words: str) -> list[str]:
    tokens = " ".join(map(tokeniser("en"), PUBLISHED)).split()
    return [token for token in tokens if token not in words]


def test_unknown_tokens_are_named_and_taken_from_the_text_that_was_binarised(tmp_path):
    references = prepared(tmp_path, known=all_but("apples", "village"))
    result = checked("translation", references)
    assert (result.bleu, result.lines, result.allowed) == (100.0, 4, ("2 of 53 tokens unknown",))
    # That text must be the one that was binarised.
    text = (tmp_path / "text" / "test.en").read_text(encoding="utf-8")
    (tmp_path / "text" / "test.en").write_text(text.replace("life", "strife"), encoding="utf-8")
    [problem, *_] = refusal("translation", references)
    assert (
        f"test: {tmp_path}/text/test.en: line 4 differs from the binarised one: binarised "
        "'nown : that &apos;s life .', text 'nown : that &apos;s strife .'; scores"
    ) in problem


def test_without_that_text_lines_with_an_unknown_token_are_left_out(tmp_path):
    references = prepared(tmp_path, known=all_but("apples", "village"))
    (tmp_path / "text" / "test.en").unlink()
    result = checked("translation", references)
    assert (result.bleu, result.lines) == (100.0, 2)
    assert result.allowed == (
        "2 of 53 tokens unknown",
        "2 lines with unknown tokens skipped",
    )


def test_a_dictionary_of_another_text_is_no_exception(tmp_path):
    [problem, *_] = refusal("translation", prepared(tmp_path, known=["another text , and ’ its words ."]))
    assert "tokens unknown: it is the dictionary of another text; scores would be meaningless" in problem


# --- real text --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_published_iwslt_test_set_passes_in_lower_case_and_in_no_other(real_corpus, tmp_path):
    published = real_corpus("iwslt14_deen")
    names = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    files = [published / "orig_xml" / f"IWSLT14.{name}.de-en.en.xml" for name in names]
    raw, text = [sentence for path in files for sentence in segments(path)], list(read_lines(published / "test.tok.en"))
    changed = {"test": ["apostrophes"]}
    result = checked("translation", prepared(tmp_path / "1", raw, text, lower_case=True, changed=changed))
    # Quotation marks at the ends of sentences.
    assert (result.bleu, result.lines, result.differing) == (pytest.approx(99.967, abs=0.005), 6750, 1249)
    [problem, *_] = refusal("translation", prepared(tmp_path / "2", raw[:500], text[:500], changed=changed))
    assert "(100.00 BLEU with lower case, which text.json does not mention)" in problem


@pytest.mark.slow
def test_newstest2014_passes_as_moses_tokens(real_corpus, tmp_path):
    raw = list(read_lines(real_corpus("wmt_news") / "newstest2014.en"))
    result = checked("translation", prepared(tmp_path, raw))
    assert (result.bleu, result.lines) == (pytest.approx(99.973, abs=0.01), 3003)
    assert result.differing < 70


# --- Google's archive -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def googles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Google's WMT'16, made by hand, through its script."""
    place = tmp_path_factory.mktemp("google")
    write_archives("wmt16_en_de", place / "archives", 60)
    settings = {"ARCHIVE_DIR": str(place / "archives"), "CHECKSUMS": "/dev/null", "VARIANT": "wmt16-google"}
    ended = run("prepare_wmt14_en_de.sh", place / "data", TEST_SETS="newstest2014", **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return place / "data"


def check_of(data: Path, out: Path) -> None:
    published = data / "raw" / "newstest2014.de"
    references = References(
        data, data / "data-bin", "test", "newstest2014", published, "en", "de", description=described(data)
    )
    write_check("translation", references, out)


@pytest.mark.slow
def test_text_that_came_in_subwords_is_joined_and_detokenised(googles, tmp_path, capsys):
    assert described(googles) == Description("moses", "subword_nmt")
    assert "@@ " in (googles / "text" / "newstest2014.de").read_text(encoding="utf-8")
    assert "@@" not in (googles / "text" / "newstest2014.tok.de").read_text(encoding="utf-8")
    check_of(googles, tmp_path / "out.json")
    said = "newstest2014: prepared references against published ones: 100.00 BLEU, 0 of 8 lines differ"
    assert capsys.readouterr().out.startswith(said)
    assert json.loads((tmp_path / "out.json").read_text())["bleu"] == 100


@pytest.mark.slow
def test_the_same_text_taken_for_plain_text_stops_it(googles, tmp_path):
    right = (googles / "text.json").read_bytes()
    try:
        describe(googles / "text.json", tokeniser="none")
        with pytest.raises(UserError) as stopped:
            check_of(googles, tmp_path / "out.json")
    finally:
        (googles / "text.json").write_bytes(right)
    problem, *examples = stopped.value.problems
    assert "newstest2014: a perfect translation would have " in problem
    assert "the prepared references (subwords: none, tokens: none) are not those of" in problem
    assert len(examples) == 3
    assert all("@@" in line for line in examples)
    assert not (tmp_path / "out.json").exists()


# --- text of one language ---------------------------------------------------------------------------------------------


def language_model(place: Path, raw: bytes, tokeniser: str, lines: Sequence[str]) -> References:
    place.mkdir()
    (place / "test").write_bytes(raw)
    binarise(place / "data-bin" / "test", place / "data-bin" / "dict.txt", lines)
    return References(place, place / "data-bin", "test", "test", place / "test", description=Description(tokeniser))


def test_every_token_of_a_language_model_is_the_published_word_or_byte(tmp_path):
    words = b" \n = An article = \n \n The <unk> ends . \n"
    as_words = language_model(tmp_path / "words", words, "none", words.decode().split("\n")[:-1])
    assert checked("language_model", as_words) == Result(4, 0, allowed=("1 of 8 tokens unknown",))
    text = "Ein Haus.\nÜber\n\nnacht".encode()
    numbers = tokens_of(text).decode().split("\n")
    as_bytes = language_model(tmp_path / "bytes", text, "bytes", numbers)
    assert checked("language_model", as_bytes) == Result(4, 0)
    as_bytes.published.write_bytes(text.replace(b"a", b"u"))
    assert refusal("language_model", as_bytes) == (
        f"{as_bytes.data}: test: 2 of 4 binarised lines differ from {as_bytes.published}; scores would be "
        'meaningless. To continue anyway: --accept-references "reason"',
        "line 1: prepared '69 105 110 32 72 97 117 115 46', published '69 105 110 32 72 117 117 115 46'",
        "line 4: prepared '110 97 99 104 116', published '110 117 99 104 116'",
    )
    as_bytes.published.write_bytes(text + b"\n\n")
    [problem] = refusal("language_model", as_bytes)
    assert "test: 4 lines were binarised, " in problem


def test_a_language_model_of_undescribed_text_is_not_compared_and_that_is_said(tmp_path):
    references = replace(language_model(tmp_path / "x", b"a\n", "none", ["a"]), description=None)
    assert "0 of 0 lines differ; not compared: no text.json" in str(checked("language_model", references))


def test_transcriptions_go_into_units_and_out_of_them(tmp_path):
    data = audio.write(tmp_path / "data")
    said = [line.split("\t")[3] for line in (data / "test.tsv").read_text().splitlines()[1:]]
    raw = write(tmp_path / "raw" / "test.en", said)
    references = References(data, data, "test", "test", raw, target="en")
    assert checked("speech", references) == Result(len(said), 0, 100.0)
    write(raw, [f"{line} too" for line in said])
    problem, *examples = refusal("speech", references)
    assert f"{len(said)} of {len(said)} lines would differ" in problem
    assert len(examples) == 3
