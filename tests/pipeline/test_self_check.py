"""The check before an evaluation: it finds prepared references that differ from the published ones."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary, indexed_dataset

from fairseq_plugins.lines import read_lines
from fairseq_plugins.tools.pipeline.decoding import LANGUAGE_MODEL, SPEECH, TRANSLATION, DecodePlan
from fairseq_plugins.tools.pipeline.self_check import CHECKS, Result, write_check
from fairseq_plugins.tools.text.bytes import tokens_of
from fairseq_plugins.tools.text.description import Description
from fairseq_plugins.tools.text.markup import segments
from fairseq_plugins.tools.text.moses import normaliser, tokeniser
from tests.pipeline.making import plan_of
from tests.refusals import problems_of, refused
from tests.scripts.archives import TED_SETS
from tests.speech_to_text import audio
from tests.texts import write

PUBLISHED = [
    "He said that it's a well-known fact, didn't he?",
    "Nobody (but Mr. Smith) had 5,000 apples & pears.",
    "The „Grub“ isn't on the map; it's a village.",
    "She doesn't know what isn't known: that's life.",
]


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


def check(plan: DecodePlan) -> Result:
    return CHECKS[plan.task](plan, plan.test_sets[0])


def prepared(
    place: Path,
    published: Sequence[str] = PUBLISHED,
    lines: Sequence[str] | None = None,
    known: Sequence[str] | None = None,
    **how: Any,
) -> DecodePlan:
    """A test set whose references are binarised as ``lines``: by default as Moses' tokens of the published ones."""
    tokenise = tokeniser("en")
    text = [tokenise(line) for line in published] if lines is None else lines
    write(place / "text" / "test.en", text)
    binarise(place / "data-bin" / "test.de-en.en", place / "data-bin" / "dict.en.txt", text, known)
    raw = write(place / "raw" / "test.en", published)
    description = Description(**{"tokeniser": "moses", **how})
    return plan_of(TRANSLATION, place, raw, source="de", target="en", text=description)


def refusal(plan: DecodePlan) -> tuple[str, ...]:
    target = plan.data / "check.json"
    problems = problems_of(write_check, plan, plan.test_sets[0], target)
    assert not target.exists()
    return problems


def test_tokens_put_together_are_the_published_text_line_by_line(tmp_path):
    plan = prepared(tmp_path)
    assert check(plan) == Result(lines=4, differing=0, bleu=100.0)
    tokens = write(tmp_path / "text" / "test.tok.en", PUBLISHED[:3])
    for test_set in (replace(plan.test_sets[0], published=tokens), replace(plan.test_sets[0], tokenised=tokens)):
        counts = f"3 lines, but test in {tmp_path}/data-bin has 4 sentences: not the references of this test set"
        assert refused(CHECKS[plan.task], plan, test_set) == f"{tokens}: {counts}"


def test_tokens_that_are_not_put_together_are_seen_although_bleu_splits_punctuation_off_itself(tmp_path, capsys):
    lines = ["A dog runs.", "Nobody sings, but she does.", "Where is it?"]
    plan = prepared(tmp_path, lines, tokeniser="none")
    problem, *examples = refusal(plan)
    would = "a perfect translation would have 100.00 BLEU (at least 99 is expected), and 3 of 3 lines would differ"
    assert would in problem
    assert examples == [
        "line 1: prepared 'A dog runs .', published 'A dog runs.'",
        "line 2: prepared 'Nobody sings , but she does .', published 'Nobody sings, but she does.'",
        "line 3: prepared 'Where is it ?', published 'Where is it?'",
    ]
    write_check(plan, plan.test_sets[0], tmp_path / "check.json", accepted="on purpose")
    assert json.loads((tmp_path / "check.json").read_text())["accepted"] == "on purpose"
    assert capsys.readouterr().err.endswith("accepted: on purpose\n")


def test_subwords_are_joined_where_the_text_is_in_subwords_and_nowhere_else(tmp_path, capsys):
    lines = [re.sub(r"\b(\w\w)(\w{4,})", r"\1@@ \2", tokeniser("en")(line)) for line in PUBLISHED]
    plan = prepared(tmp_path, lines=lines, subwords="subword_nmt")
    write_check(plan, plan.test_sets[0], tmp_path / "check.json")
    said = "test: prepared references against published ones: 100.00 BLEU, 0 of 4 lines differ\n"
    assert capsys.readouterr().out == said
    assert json.loads((tmp_path / "check.json").read_text())["bleu"] == 100
    (tmp_path / "check.json").unlink()
    problem, *examples = refusal(replace(plan, text=Description("none")))
    assert "the prepared references (subwords: none, tokens: none) are not those of" in problem
    assert any("@@" in line for line in examples)


def test_a_known_difference_is_allowed_for_by_name_and_only_where_it_is_written_down(tmp_path):
    tokenise: Callable[[str], str] = tokeniser("en")
    curly, quoted = [line.replace("'", "’") for line in PUBLISHED], [f"„{line}“" for line in PUBLISHED]
    apostrophes, punctuation = ({"changed": {"test": [name]}} for name in ("apostrophes", "punctuation"))
    cases: tuple[tuple[str, list[str], Callable[[str], str], dict[str, Any]], ...] = (
        ("lower case", PUBLISHED, str.lower, {"lower_case": True}),
        ("apostrophes", curly, lambda line: line.replace("’", "'"), apostrophes),
        ("punctuation", quoted, normaliser("en"), punctuation),
    )
    for changed, published, make, how in cases:
        lines = [tokenise(make(line)) for line in published]
        result = check(prepared(tmp_path / changed, published, lines, **how))
        assert result.bleu is not None
        assert result.bleu >= 99
        assert result.allowed == (f"published text changed as text.json says: {changed}",)
        assert len(refusal(prepared(tmp_path / f"{changed} unsaid", published, lines))) == 4


def test_a_known_difference_hides_no_other(tmp_path):
    lower = [tokeniser("en")(line.lower()) for line in PUBLISHED]
    # Text with capitals was not put into lower case by the preparation.
    problem, *examples = refusal(prepared(tmp_path, lines=[lower[0].upper(), *lower[1:]], lower_case=True))
    assert "1 of 4 lines would differ" in problem
    assert len(examples) == 1


def test_truecased_text_has_the_capitals_of_its_sentences_again(tmp_path):
    tokenise = tokeniser("en")
    # Moses' truecaser takes a colon for the end of a sentence.
    published = PUBLISHED[:3]
    truecased = [tokenise(line[0].lower() + line[1:]) for line in published]
    result = check(prepared(tmp_path / "said", published, truecased, truecased=True))
    assert result == Result(3, 0, 100.0, ("truecased text, compared without case (100.00 BLEU with it)",))
    assert "3 of 3 lines would differ" in refusal(prepared(tmp_path / "unsaid", published, truecased))[0]
    # Lower case is more than that, and what was lost does not come back.
    titles = ["The Old Man And The Sea", *published]
    lower = prepared(tmp_path / "lower", titles, [tokenise(line.lower()) for line in titles], truecased=True)
    assert "BLEU with case: the capitals of truecased text were not restored" in refusal(lower)[0]


def test_unknown_tokens_are_taken_from_the_text_that_was_binarised_else_their_lines_are_skipped(tmp_path):
    words = " ".join(map(tokeniser("en"), PUBLISHED)).split()
    plan = prepared(tmp_path, known=[word for word in words if word not in ("apples", "village")])
    result = check(plan)
    assert (result.bleu, result.lines, result.allowed) == (100.0, 4, ("2 of 53 tokens unknown",))
    text = tmp_path / "text" / "test.en"
    text.write_text(text.read_text(encoding="utf-8").replace("life", "strife"), encoding="utf-8")
    for _ in ("another text", "no text"):
        result = check(plan)
        assert (result.bleu, result.lines) == (100.0, 2)
        assert result.allowed == ("2 of 53 tokens unknown", "2 lines with unknown tokens skipped")
        text.unlink(missing_ok=True)
    # Nothing to compare is not a perfect score.
    lines, known = [line + " ." for line in PUBLISHED], [word for word in words if word != "."]
    stops = prepared(tmp_path / "stops", lines, known=known)
    (tmp_path / "stops" / "text" / "test.en").unlink()
    assert "0 of 0 lines would differ" in refusal(stops)[0]


@pytest.mark.slow
def test_the_published_iwslt_test_set_passes_in_lower_case_and_in_no_other(real_corpus, tmp_path):
    published = real_corpus("iwslt14_deen")
    files = [published / "orig_xml" / f"IWSLT14.{name}.de-en.en.xml" for name in TED_SETS]
    raw, text = [sentence for path in files for sentence in segments(path)], list(read_lines(published / "test.tok.en"))
    changed = {"test": ["apostrophes"]}
    result = check(prepared(tmp_path / "1", raw, text, lower_case=True, changed=changed))
    # Quotation marks at the ends of sentences.
    assert (result.bleu, result.lines, result.differing) == (pytest.approx(99.967, abs=0.005), 6750, 1249)
    assert len(refusal(prepared(tmp_path / "2", raw[:500], text[:500], changed=changed))) == 4


@pytest.mark.slow
def test_newstest2014_passes_as_moses_tokens(real_corpus, tmp_path):
    raw = list(read_lines(real_corpus("wmt_news") / "newstest2014.en"))
    result = check(prepared(tmp_path, raw))
    assert (result.bleu, result.lines) == (pytest.approx(99.973, abs=0.01), 3003)
    assert result.differing < 70


def language_model(place: Path, raw: bytes, tokeniser: str, lines: Sequence[str]) -> DecodePlan:
    place.mkdir()
    (place / "test").write_bytes(raw)
    binarise(place / "data-bin" / "test", place / "data-bin" / "dict.txt", lines)
    return plan_of(LANGUAGE_MODEL, place, place / "test", text=Description(tokeniser))


def test_every_token_of_a_language_model_is_the_published_word_or_byte(tmp_path):
    words = b" \n = An article = \n \n The <unk> ends . \n"
    as_words = language_model(tmp_path / "words", words, "none", words.decode().split("\n")[:-1])
    assert check(as_words) == Result(4, 0, allowed=("1 of 8 tokens unknown",))
    assert "0 of 0 lines differ; not compared: no text.json" in str(check(replace(as_words, text=None)))
    text = "Ein Haus.\nÜber\n\nnacht".encode()
    as_bytes = language_model(tmp_path / "bytes", text, "bytes", tokens_of(text).decode().split("\n"))
    assert check(as_bytes) == Result(4, 0)
    raw = as_bytes.data / "test"
    raw.write_bytes(text.replace(b"a", b"u"))
    assert refusal(as_bytes) == (
        f"{as_bytes.data}: test: 2 of 4 binarised lines differ from {raw}; scores would be "
        'meaningless. To continue anyway: --accept-references "reason"',
        "line 1: prepared '69 105 110 32 72 97 117 115 46', published '69 105 110 32 72 117 117 115 46'",
        "line 4: prepared '110 97 99 104 116', published '110 117 99 104 116'",
    )
    raw.write_bytes(text + b"\n\n")
    [problem] = refusal(as_bytes)
    assert "test: 4 lines were binarised, " in problem


def test_transcriptions_go_into_units_and_out_of_them(tmp_path):
    data = audio.write(tmp_path / "data")
    said = [line.split("\t")[3] for line in (data / "test.tsv").read_text().splitlines()[1:]]
    plan = plan_of(SPEECH, data, write(tmp_path / "raw" / "test.en", said), target="en")
    assert check(plan) == Result(len(said), 0, 100.0)
    write(tmp_path / "raw" / "test.en", [f"{line} too" for line in said])
    problem, *examples = refusal(plan)
    assert f"{len(said)} of {len(said)} lines would differ" in problem
    assert len(examples) == 3
