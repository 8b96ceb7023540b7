"""Scores that can be worked out by hand, and those that another program gives."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.published import ROWS
from fairseq_plugins.scoring import score
from fairseq_plugins.scoring.metrics import METRICS, TASKS, value_of
from fairseq_plugins.scoring.tokens import moses, split_compounds
from tests.scoring.made_up import WORDS, dropped, swapped

EVERYTHING = [name for task in TASKS.values() for name in task]
SENTENCES = st.lists(
    st.lists(st.sampled_from("a b c d e , . well-known".split()), min_size=1, max_size=9), min_size=2, max_size=8
)


def value(name: str, hypotheses: Sequence[str], *references: Sequence[str], lower_case: bool = False) -> float:
    return value_of(METRICS[name], hypotheses, references, lower_case=lower_case).value


def test_a_perfect_translation() -> None:
    best = {name: pytest.approx(100.0 if METRICS[name].higher_is_better else 0.0) for name in EVERYTHING}
    assert {name: value(name, WORDS, WORDS) for name in EVERYTHING} == best


def test_bleu_by_hand() -> None:
    """Matches 5 of 6, 3 of 5, 2 of 4 and 1 of 3; as long as the reference."""
    by_hand = 100 * math.exp(sum(map(math.log, (5 / 6, 3 / 5, 2 / 4, 1 / 3))) / 4)
    for name in ("sacrebleu", "tokenised", "compound-split"):
        assert value(name, ["the cat sat on a mat"], ["the cat sat on the mat"]) == pytest.approx(by_hand)


def test_brevity_penalty_by_hand() -> None:
    """Every n-gram of the five words matches; the reference has six."""
    score = value("tokenised", ["the cat sat on the"], ["the cat sat on the mat"])
    assert score == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_without_a_match_of_four_words_multi_bleu_gives_nothing_and_sacrebleu_smooths() -> None:
    hypothesis, reference = ["a b c x d e f"], ["a b c y d e f"]
    assert value("tokenised", hypothesis, reference) == 0.0
    # Precisions 6/7, 4/6 and 2/5; the fourth, 0 of 4, counts as half a match.
    smoothed = 100 * math.exp(sum(map(math.log, (6 / 7, 4 / 6, 2 / 5, 0.5 / 4))) / 4)
    assert value("sacrebleu", hypothesis, reference) == pytest.approx(smoothed)


def test_ter_by_hand() -> None:
    """A substitution, a deletion, an insertion and the shift of a phrase are one edit each."""
    for text in ("the cat sat on a mat", "the cat sat on the", "the big cat sat on the mat", "on the mat the cat sat"):
        assert value("ter", [text], ["the cat sat on the mat"]) == pytest.approx(100 / 6)


def test_chrf_by_hand() -> None:
    """Popovic (WMT 2015, WMT 2017): F of the mean precision and recall over the orders that both texts have, beta 2.

    "ab" has 2 of the 3 letters and 1 of the 2 pairs of "abc"; chrF++ adds a word of each that does not match.
    """
    recall = (2 / 3 + 1 / 2) / 2
    assert value("chrf", ["ab"], ["abc"]) == pytest.approx(100 * 5 * recall / (4 + recall))
    precision, recall = (1 + 1 + 0) / 3, (2 / 3 + 1 / 2 + 0) / 3
    assert value("chrf++", ["ab"], ["abc"]) == pytest.approx(100 * 5 * precision * recall / (4 * precision + recall))


def test_word_errors_by_hand() -> None:
    """Over the whole set: a substitution, a deletion and an insertion in 6 + 2 words."""
    found = value("wer", ["the cat sat on a", "it rained hard"], ["the cat sat on the mat", "it rained"])
    assert found == pytest.approx(100 * 3 / 8)


def test_rouge_by_hand() -> None:
    """4 of 4 words against 4 of 6, 2 of 3 pairs against 2 of 5, a longest common subsequence of 4; F1 of each."""
    hypothesis, reference = ["cat sat the mat"], ["the cat sat on the mat"]
    assert value("rouge-1", hypothesis, reference) == pytest.approx(100 * 2 * 4 / (4 + 6))
    assert value("rouge-2", hypothesis, reference) == pytest.approx(100 * 2 * 2 / (3 + 5))
    assert value("rouge-l", hypothesis, reference) == pytest.approx(100 * 2 * 4 / (4 + 6))


def test_rouge_is_a_mean_over_summaries_and_stems() -> None:
    assert value("rouge-1", ["dogs barking", "x"], ["dog barks", "y"]) == pytest.approx(50.0)


def test_case_counts_unless_it_is_taken_away() -> None:
    upper = [sentence.upper() for sentence in WORDS]
    for name in ("sacrebleu", "tokenised", "compound-split", "chrf", "chrf++", "wer"):
        best = 100.0 if METRICS[name].higher_is_better else 0.0
        assert value(name, upper, WORDS) != pytest.approx(best), name
        assert value(name, upper, WORDS, lower_case=True) == pytest.approx(best), name


def test_case_is_in_the_signature() -> None:
    for lower_case, case in ((False, "mixed"), (True, "lc")):
        scores = score({"a": WORDS}, [WORDS], language_pair="de-en", lower_case=lower_case)
        signatures = {name: one.values[0].signature for name, one in scores.systems[0].scores.items()}
        assert all(f"case:{case}" in text for name, text in signatures.items() if name != "TER")


def as_fairseq_counts(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, int]:
    """BLEU and reference length by the compiled scorer that ``fairseq-generate`` prints the score of."""
    dictionary = Dictionary()
    scorer = Scorer(BleuConfig(pad=dictionary.pad(), eos=dictionary.eos(), unk=dictionary.unk()))
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        encoded = [dictionary.encode_line(text, add_if_not_exist=True).int() for text in (reference, hypothesis)]
        scorer.add(*encoded)
    return float(scorer.score()), int(scorer.stat.reflen)


@given(SENTENCES, st.integers(2, 5))
def test_tokenised_bleu_is_that_of_fairseq(sentences: list[list[str]], every: int) -> None:
    references = [" ".join(words) for words in sentences]
    hypotheses = swapped(references, every)
    found = value_of(METRICS["tokenised"], hypotheses, [references])
    expected, length = as_fairseq_counts(hypotheses, references)
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert found.reference_length == length


def test_tokenised_bleu_is_that_of_fairseq_on_short_output() -> None:
    references = [" ".join(random.Random(number).choices("abcdef", k=12)) for number in range(40)]
    hypotheses = dropped(references, 5)
    expected, length = as_fairseq_counts(hypotheses, references)
    found = value_of(METRICS["tokenised"], hypotheses, [references])
    assert (found.value, found.reference_length) == (pytest.approx(expected, abs=1e-9), length)
    assert 0 < expected < 100


def test_fairseq_counts_some_words_that_do_not_match() -> None:
    """It hashes n-grams as signed bytes, so that word numbers above 127 meet others; an empty line is a word."""
    dictionary = Dictionary()
    words = [f"word{number}" for number in range(dictionary.nspecial, 300)]
    for word in words:
        dictionary.add_symbol(word)
    found = Scorer(BleuConfig(pad=dictionary.pad(), eos=dictionary.eos(), unk=dictionary.unk()))
    for hypothesis, reference in (((128, 4), (126, 250)), ((), (126,))):
        texts = [" ".join(words[number - dictionary.nspecial] for number in side) for side in (reference, hypothesis)]
        found.add(*(dictionary.encode_line(text, add_if_not_exist=False).int() for text in texts))
    assert (found.stat.match1, found.stat.match2) == (0, 1)
    assert found.stat.predlen == 2 + 1


TRICKY = ["rich-text format", "a-b-c", "U-Bahn-Hof", "x-ä-y", "- -- ---", "well - known", "-x y-", "a--b", "½-¾"]


def test_compounds_by_hand() -> None:
    assert split_compounds(["rich-text format", "- -x y- -"]) == ["rich ##AT##-##AT## text format", "- -x y- -"]


def test_compounds_that_moses_split_are_one_token_too() -> None:
    for text in ("a well-known thing.", "well-known", "U-Bahn-Hof", "a - b", "mail@-@x"):
        aggressive = MosesTokenizer(lang="en").tokenize(text, aggressive_dash_splits=True, return_str=True)
        assert split_compounds([aggressive]) == split_compounds(moses([text], "en"))


@pytest.mark.skipif(shutil.which("perl") is None, reason="Perl is not installed")
def test_compounds_as_perl_splits_them() -> None:
    """The substitution of tensor2tensor's and fairseq's scripts, run by the language it is written in."""
    command = ["perl", "-ple", r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"]
    told = subprocess.run(command, input="\n".join(TRICKY).encode(), capture_output=True, check=True).stdout.decode()
    assert split_compounds(TRICKY) == told.removesuffix("\n").split("\n")


def test_a_split_compound_by_hand() -> None:
    """One wrong word of five with its hyphen in the word, one of seven with the hyphen apart."""
    scores = score({"a": ["well-read a b c d"]}, [["well-known a b c d"]], language_pair="en-de").systems[0].scores
    tokenised, split = (4 / 5, 3 / 4, 2 / 3, 1 / 2), (6 / 7, 4 / 6, 2 / 5, 1 / 4)
    for name, precisions in (("tokenised BLEU", tokenised), ("compound-split BLEU", split)):
        assert scores[name].mean == pytest.approx(100 * math.exp(sum(map(math.log, precisions)) / 4))


def test_moses_tokens_by_hand() -> None:
    assert moses(["It's 3.5 %, isn't it? (Yes.)"], "en") == ["It 's 3.5 % , isn 't it ? ( Yes . )"]
    assert moses(['Er sagte: "rich-text".'], "de") == ['Er sagte : " rich-text " .']


@settings(max_examples=25, deadline=None)
@given(sentences=SENTENCES, data=st.data())
def test_the_order_of_the_sentences_does_not_matter(sentences: list[list[str]], data: st.DataObject) -> None:
    references = [" ".join(words) for words in sentences]
    hypotheses = dropped(swapped(references, 2), 4)
    order = data.draw(st.permutations(range(len(references))))
    for name in EVERYTHING:
        shuffled = value(name, [hypotheses[place] for place in order], [references[place] for place in order])
        assert shuffled == pytest.approx(value(name, hypotheses, references)), name


@settings(max_examples=25)
@given(SENTENCES)
def test_more_references(sentences: list[list[str]]) -> None:
    references = [" ".join(words) for words in sentences]
    hypotheses, others = dropped(references, 3), swapped(references, 1)
    for name in EVERYTHING:
        if name == "wer":
            continue
        alone = value(name, hypotheses, references)
        assert value(name, hypotheses, references, references) == pytest.approx(alone)
    for name in TASKS["summarisation"]:
        assert value(name, hypotheses, references, others) >= value(name, hypotheses, references) - 1e-9
    if all(hypotheses):
        assert value("sacrebleu", hypotheses, references, hypotheses) == pytest.approx(
            value("sacrebleu", hypotheses, hypotheses)
        )


def test_word_errors_take_one_reference() -> None:
    with pytest.raises(UserError, match="WER takes one reference, not 2"):
        value("wer", WORDS, WORDS, WORDS)


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module, extra in (("rouge-1", "rouge_score.rouge_scorer", "summarisation"), ("wer", "jiwer", "speech")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UserError) as caught:
            value(name, WORDS, WORDS)
        assert str(caught.value).endswith(f"pip install 'fairseq-deep[{extra}]'")


def test_the_scorer_of_fairseq_is_the_compiled_one() -> None:
    """Guards the comparison above: were padding counted, both sides would agree on wrong lengths."""
    assert as_fairseq_counts(["a b c d"], ["a b c d"]) == (pytest.approx(100.0), 4)


def test_published_rows_have_a_score_that_names_their_paper() -> None:
    metrics = {(one.metric, one.scorer): one for one in METRICS.values()}
    printed = {(name, row.scorer, row.paper) for row in ROWS for name in row.metric.split()}
    scored = {one for one in printed if one[0] in {metric for metric, _ in metrics}}
    assert ("BLEU", "sacreBLEU", "B2T") in scored
    assert all(paper in metrics[name, scorer].used_by for name, scorer, paper in scored)
