"""Scores that can be worked out by hand, and those that another program gives."""

import math
import sys
from collections.abc import Sequence

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from fairseq_plugins.tools.pipeline.published import ROWS
from fairseq_plugins.tools.scoring import score
from fairseq_plugins.tools.scoring.metrics import METRICS, TASKS, value_of
from fairseq_plugins.tools.scoring.text import moses, split_compounds
from tests.refusals import refused
from tests.scoring.made_up import WORDS, dropped, swapped

EVERYTHING = [name for task in TASKS.values() for name in task]
BLEUS = ("sacrebleu", "tokenised", "compound-split")
LINE = st.lists(st.sampled_from("a b c d e , . well-known".split()), min_size=1, max_size=9)
SENTENCES = st.lists(LINE, min_size=2, max_size=8)


def value(name: str, hypotheses: Sequence[str], *references: Sequence[str], lower_case: bool = False) -> float:
    return value_of(METRICS[name], hypotheses, references, lower_case=lower_case).value


def geometric_mean(*precisions: float) -> float:
    return 100 * math.exp(sum(map(math.log, precisions)) / len(precisions))


CAT = "the cat sat on the mat"
SHORT, LONG = (2 / 3 + 1 / 2) / 2, (2 / 3 + 1 / 2 + 0) / 3
BY_HAND: tuple[tuple[str, Sequence[str], Sequence[str], float], ...] = (
    # Matches 5 of 6, 3 of 5, 2 of 4 and 1 of 3; as long as the reference.
    *((name, ["the cat sat on a mat"], [CAT], geometric_mean(5 / 6, 3 / 5, 2 / 4, 1 / 3)) for name in BLEUS),
    # Every n-gram of the five words matches; the reference has six.
    ("tokenised", ["the cat sat on the"], [CAT], 100 * math.exp(1 - 6 / 5)),
    # No match of four words: multi-bleu.perl gives nothing, and sacreBLEU counts 0 of 4 as half a match.
    ("tokenised", ["a b c x d e f"], ["a b c y d e f"], 0.0),
    ("sacrebleu", ["a b c x d e f"], ["a b c y d e f"], geometric_mean(6 / 7, 4 / 6, 2 / 5, 0.5 / 4)),
    # A substitution, a deletion, an insertion and the shift of a phrase are one edit each.
    ("ter", ["the cat sat on a mat"], [CAT], 100 / 6),
    ("ter", ["the cat sat on the"], [CAT], 100 / 6),
    ("ter", ["the big cat sat on the mat"], [CAT], 100 / 6),
    ("ter", ["on the mat the cat sat"], [CAT], 100 / 6),
    # Popovic (WMT 2015, WMT 2017): F of the mean precision and recall over the orders that both texts have, beta 2.
    # "ab" has 2 of the 3 letters and 1 of the 2 pairs of "abc"; chrF++ adds a word of each that does not match.
    ("chrf", ["ab"], ["abc"], 100 * 5 * SHORT / (4 + SHORT)),
    ("chrf++", ["ab"], ["abc"], 100 * 5 * (2 / 3) * LONG / (4 * (2 / 3) + LONG)),
    # Over the whole set: a substitution, a deletion and an insertion in 6 + 2 words.
    ("wer", ["the cat sat on a", "it rained hard"], [CAT, "it rained"], 100 * 3 / 8),
    ("wer", ["it rained"], ["it\u2028rained"], 0.0),
    # F1 of 4 of 4 words against 4 of 6, 2 of 3 pairs against 2 of 5, a longest common subsequence of 4.
    ("rouge-1", ["cat sat the mat"], [CAT], 100 * 2 * 4 / (4 + 6)),
    ("rouge-2", ["cat sat the mat"], [CAT], 100 * 2 * 2 / (3 + 5)),
    ("rouge-l", ["cat sat the mat"], [CAT], 100 * 2 * 4 / (4 + 6)),
    # The mean over summaries, of word stems.
    ("rouge-1", ["dogs barking", "x"], ["dog barks", "y"], 50.0),
)


def test_scores_by_hand() -> None:
    found = [(*case[:3], value(*case[:3])) for case in BY_HAND]
    assert [case for case, score in zip(BY_HAND, found, strict=True) if score[3] != pytest.approx(case[3])] == []


def test_a_text_is_no_list_of_sentences_and_both_sides_are_needed() -> None:
    one = [CAT]
    for sides in (({"a": CAT}, [one]), ({"a": CAT}, one), ({"a": one}, one)):
        assert refused(score, *sides) == "give lists of sentences, not a text"
    for texts in (({}, [one]), ({"a": one}, [])):
        assert refused(score, *texts) == "a system and a reference are needed, and there is none"


def test_case_counts_unless_it_is_taken_away_and_the_signature_says_so() -> None:
    upper = [sentence.upper() for sentence in WORDS]
    for name in (*BLEUS, "chrf", "chrf++", "wer"):
        best = 100.0 if METRICS[name].higher_is_better else 0.0
        assert value(name, upper, WORDS) != pytest.approx(best), name
        assert value(name, upper, WORDS, lower_case=True) == pytest.approx(best), name
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
    # Were padding counted, both sides would agree on wrong lengths.
    assert as_fairseq_counts(["a b c d"], ["a b c d"]) == (pytest.approx(100.0), 4)
    references = [" ".join(words) for words in sentences]
    for hypotheses in (swapped(references, every), [text or "a" for text in dropped(references, every)]):
        found = value_of(METRICS["tokenised"], hypotheses, [references])
        expected, length = as_fairseq_counts(hypotheses, references)
        assert (found.value, found.reference_length) == (pytest.approx(expected, abs=1e-9), length)


def test_compounds_by_hand() -> None:
    """The substitution of tensor2tensor's and fairseq's scripts: s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g."""
    assert split_compounds(["rich-text format", "- -x y- -"]) == ["rich ##AT##-##AT## text format", "- -x y- -"]
    assert split_compounds(["a-b-c", "½-¾"]) == ["a ##AT##-##AT## b-c", "½ ##AT##-##AT## ¾"]
    for text in ("a well-known thing.", "well-known", "U-Bahn-Hof", "a - b", "mail@-@x"):
        aggressive = MosesTokenizer(lang="en").tokenize(text, aggressive_dash_splits=True, return_str=True)
        assert split_compounds([aggressive]) == split_compounds(moses([text], "en")), "split by Moses already"


def test_moses_tokens_by_hand() -> None:
    assert moses(["It's 3.5 %, isn't it? (Yes.)"], "en") == ["It 's 3.5 % , isn 't it ? ( Yes . )"]
    assert moses(['Er sagte: "rich-text".'], "de") == ['Er sagte : " rich-text " .']


def test_a_perfect_translation_of_one_or_several_references() -> None:
    others = dropped(WORDS, 3)
    for name in EVERYTHING:
        best = pytest.approx(100.0 if METRICS[name].higher_is_better else 0.0)
        assert value(name, WORDS, WORDS) == best != value(name, WORDS, others), name
        assert name == "wer" or value(name, WORDS, others, WORDS) == best, name


def test_what_a_library_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(value, "wer", WORDS, WORDS, WORDS).startswith("WER takes one reference, not 2")
    for name, module, extra in (("rouge-1", "rouge_score.rouge_scorer", "summarisation"), ("wer", "jiwer", "speech")):
        monkeypatch.setitem(sys.modules, module, None)
        assert refused(value, name, WORDS, WORDS).endswith(f"pip install 'fairseq-deep[{extra}]'")


def test_published_rows_have_a_score_that_names_their_paper() -> None:
    metrics = {(one.metric, one.scorer): one for one in METRICS.values()}
    printed = {(name, row.scorer, row.paper) for row in ROWS for name in row.metric.split()}
    scored = {one for one in printed if one[0] in {metric for metric, _ in metrics}}
    assert ("BLEU", "sacreBLEU", "B2T") in scored
    assert all(paper in metrics[name, scorer].used_by for name, scorer, paper in scored)
