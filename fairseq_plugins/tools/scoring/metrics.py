"""Table of scores: one row each, with its form of text, its library and the papers that print it.

This package computes none of them itself: sacreBLEU, rouge-score and jiwer do. A new score is one line in
:data:`METRICS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Literal

from sacrebleu.metrics import BLEU, CHRF, TER

from fairseq_plugins.errors import UserError, unknown_name

Reads = Literal["plain", "tokens", "compounds", "straight compounds"]
"""Detokenised text as published; Moses tokens; Moses tokens with compounds split at hyphens; the last one after
punctuation was made ASCII."""


@dataclass(frozen=True)
class Value:
    """One score of one output.

    Args:
        value: the score, in points (0 to 100; error rates may be above).
        signature: all settings that the number depends on, with the version of the library.
        reference_length: tokens of the references as the score counts them; None if it does not count them.
    """

    value: float
    signature: str
    reference_length: int | None = None


@dataclass(frozen=True)
class Metric:
    """One row of the table of scores.

    Args:
        name: its name in tables.
        metric: the quantity (``BLEU``), without the program that computes it.
        scorer: which of its versions (``sacreBLEU``, ``tokenised``, ``compound-split``, ...).
        reads: the form of text it is computed on.
        used_by: the published tables that print this version; empty if none does.
        sacre: makes sacreBLEU's object, with ``lowercase`` to lower-case both sides. None for other libraries.
        other: computes the score of hypotheses and references with another library.
        higher_is_better: False for error rates.
    """

    name: str
    metric: str
    scorer: str
    reads: Reads
    used_by: str
    sacre: Callable[..., Any] | None = None
    other: Callable[[Sequence[str], Sequence[Sequence[str]], bool], Value] | None = None
    higher_is_better: bool = True


# `force` only silences sacreBLEU's own remark about tokenised text, which would come once more for each metric.
_bleu = partial(BLEU, force=True)
# Computed like multi-bleu.perl: tokens as given, no smoothing. fairseq-generate prints up to 0.03 more: its compiled
# scorer counts some n-grams that do not match.
_bleu_of_tokens = partial(BLEU, force=True, tokenize="none", smooth_method="none")


def _rouge(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], _lower_case: bool, *, kind: str = "rouge1"
) -> Value:
    """Mean F1 with Porter stems, as ROUGE-1.5.5 ``-m``; with several references the best one counts.

    Words are runs of a-z and 0-9, lower-cased, so it is for English. ROUGE-L treats the summary as one sentence.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UserError("ROUGE needs rouge-score: pip install 'fairseq-deep[summarisation]'") from None
    scorer = RougeScorer([kind], use_stemmer=True)
    total = 0.0
    for summary, *targets in zip(hypotheses, *references, strict=True):
        total += scorer.score_multi(targets, summary)[kind].fmeasure
    signature = f"nrefs:{len(references)}|case:lc|stem:porter|rouge-score:{version('rouge-score')}"
    return Value(100 * total / len(hypotheses), signature)


def _word_error_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]], lower_case: bool) -> Value:
    """Substitutions, deletions and insertions for each hundred words, at any white space; takes a single reference."""
    try:
        import jiwer
    except ImportError:
        raise UserError("WER needs jiwer: pip install 'fairseq-deep[speech]'") from None
    if len(references) != 1:
        raise UserError(f"WER takes one reference, not {len(references)}")
    transcripts, outputs = (
        # jiwer separates words at spaces alone.
        [" ".join((text.lower() if lower_case else text).split()) for text in side]
        for side in (references[0], hypotheses)
    )
    counts = jiwer.process_words(transcripts, outputs)
    words = counts.hits + counts.substitutions + counts.deletions
    signature = f"nrefs:1|case:{'lc' if lower_case else 'mixed'}|jiwer:{version('jiwer')}"
    return Value(100 * float(counts.wer), signature, int(words))


_TOKENISED_BY = "Admin, admin-torch (what fairseq-generate prints); DS-Init+MAtt (multi-bleu.perl)"
_SPLIT_BY = "Ott et al. 2018 (29.3), B2T (footnote 7), T-Fixup (compound_split_bleu.sh)"
_T2T_BY = "Vaswani et al. 2017 (tensor2tensor's get_ende_bleu.sh)"
_PLAIN_BY = "B2T; DS-Init+MAtt (in brackets); Ott et al. 2018 (28.6)"

# TER ignores case by definition.
METRICS: Mapping[str, Metric] = {
    "sacrebleu": Metric("sacreBLEU", "BLEU", "sacreBLEU", "plain", _PLAIN_BY, _bleu),
    "tokenised": Metric("tokenised BLEU", "BLEU", "tokenised", "tokens", _TOKENISED_BY, _bleu_of_tokens),
    "compound-split": Metric("compound-split BLEU", "BLEU", "compound-split", "compounds", _SPLIT_BY, _bleu_of_tokens),
    "compound-split-t2t": Metric(
        "compound-split BLEU (t2t)", "BLEU", "compound-split-t2t", "straight compounds", _T2T_BY, _bleu_of_tokens
    ),
    "chrf": Metric("chrF", "chrF", "sacreBLEU", "plain", "DS-Init+MAtt (English-Finnish)", CHRF),
    "chrf++": Metric("chrF++", "chrF++", "sacreBLEU", "plain", "", partial(CHRF, word_order=2)),
    "ter": Metric("TER", "TER", "sacreBLEU", "plain", "", lambda lowercase: TER(), higher_is_better=False),
    "rouge-1": Metric("ROUGE-1", "ROUGE-1", "ROUGE", "plain", "B2T (headlines)", other=_rouge),
    "rouge-2": Metric("ROUGE-2", "ROUGE-2", "ROUGE", "plain", "B2T (headlines)", other=partial(_rouge, kind="rouge2")),
    "rouge-l": Metric("ROUGE-L", "ROUGE-L", "ROUGE", "plain", "B2T (headlines)", other=partial(_rouge, kind="rougeL")),
    "wer": Metric("WER", "WER", "WER", "plain", "B2T (LibriSpeech)", other=_word_error_rate, higher_is_better=False),
}
"""Every score by its name in ``--metrics``."""

TASKS: Mapping[str, tuple[str, ...]] = {
    "translation": ("sacrebleu", "tokenised", "compound-split", "compound-split-t2t", "chrf", "chrf++", "ter"),
    "summarisation": ("rouge-1", "rouge-2", "rouge-l"),
    "speech": ("wer",),
}
"""Default scores of each task, best-known first."""


def metric_named(name: str) -> Metric:
    """Return the score that ``--metrics`` calls ``name``, in any case of letters, or raise a UserError."""
    key = name.strip().lower()
    if key not in METRICS:
        raise UserError(unknown_name("metric", name.strip(), METRICS))
    return METRICS[key]


def metric_names(text: str) -> str:
    """The type of ``--metrics``: names of scores with commas between them."""
    for name in text.split(","):
        metric_named(name)
    return text


def value_of(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lower_case: bool = False
) -> Value:
    """Return the value of ``metric`` for one output; ``references`` has a list for each reference translation."""
    if metric.other is not None:
        return metric.other(hypotheses, references, lower_case)
    assert metric.sacre is not None
    scorer = metric.sacre(lowercase=lower_case)
    score = scorer.corpus_score(list(hypotheses), [list(side) for side in references])
    length = getattr(score, "ref_len", None)
    return Value(float(score.score), str(scorer.get_signature()), None if length is None else int(length))
