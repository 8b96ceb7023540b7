"""Table of scores: one row each, with its form of text, its library and the papers that print it.

This package computes none of them itself: sacreBLEU, rouge-score and jiwer do. A new score is one line in
:data:`METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.scoring.corpus_metric import CorpusMetric, Value
from fairseq_plugins.scoring.rouge import rouge
from fairseq_plugins.scoring.sacre import bleu, bleu_of_tokens, chrf, ter
from fairseq_plugins.scoring.word_errors import word_error_rate

Reads = Literal["plain", "tokens", "compounds", "straight compounds"]
"""Detokenised text as it was published, Moses tokens, these with compounds split at hyphens, or the same of text whose
punctuation was made ASCII first."""


@dataclass(frozen=True)
class Metric:
    """One row of the table of scores.

    Args:
        name: its name in tables.
        metric: the quantity (``BLEU``), whoever computes it.
        scorer: which of its versions (``sacreBLEU``, ``tokenised``, ``compound-split``, ...).
        reads: the form of text it is computed on.
        used_by: the published tables that print this version; empty if none does.
        build: makes the computation; its argument: whether both sides are lower-cased.
        higher_is_better: False for error rates.
        paired: whether sacreBLEU's paired tests can be run on it.
    """

    name: str
    metric: str
    scorer: str
    reads: Reads
    used_by: str
    build: Callable[[bool], CorpusMetric]
    higher_is_better: bool = True
    paired: bool = True


METRICS: Mapping[str, Metric] = {
    "sacrebleu": Metric(
        "sacreBLEU",
        "BLEU",
        "sacreBLEU",
        "plain",
        "B2T; DS-Init+MAtt (in brackets); Ott et al. 2018 (28.6)",
        bleu,
    ),
    "tokenised": Metric(
        "tokenised BLEU",
        "BLEU",
        "tokenised",
        "tokens",
        "Admin, admin-torch (what fairseq-generate prints); DS-Init+MAtt (multi-bleu.perl)",
        bleu_of_tokens,
    ),
    "compound-split": Metric(
        "compound-split BLEU",
        "BLEU",
        "compound-split",
        "compounds",
        "Ott et al. 2018 (29.3), B2T (footnote 7), T-Fixup (compound_split_bleu.sh)",
        bleu_of_tokens,
    ),
    "compound-split-t2t": Metric(
        "compound-split BLEU (t2t)",
        "BLEU",
        "compound-split-t2t",
        "straight compounds",
        "Vaswani et al. 2017 (tensor2tensor's get_ende_bleu.sh)",
        bleu_of_tokens,
    ),
    "chrf": Metric(
        "chrF",
        "chrF",
        "sacreBLEU",
        "plain",
        "DS-Init+MAtt (English-Finnish)",
        chrf(word_order=0),
    ),
    "chrf++": Metric("chrF++", "chrF++", "sacreBLEU", "plain", "", chrf(word_order=2)),
    "ter": Metric("TER", "TER", "sacreBLEU", "plain", "", ter, higher_is_better=False),
    "rouge-1": Metric("ROUGE-1", "ROUGE-1", "ROUGE", "plain", "B2T (headlines)", rouge("rouge1"), paired=False),
    "rouge-2": Metric("ROUGE-2", "ROUGE-2", "ROUGE", "plain", "B2T (headlines)", rouge("rouge2"), paired=False),
    "rouge-l": Metric("ROUGE-L", "ROUGE-L", "ROUGE", "plain", "B2T (headlines)", rouge("rougeL"), paired=False),
    "wer": Metric(
        "WER",
        "WER",
        "WER",
        "plain",
        "B2T (LibriSpeech)",
        word_error_rate,
        higher_is_better=False,
        paired=False,
    ),
}
"""By the name that ``--metrics`` takes."""

TASKS: Mapping[str, tuple[str, ...]] = {
    "translation": ("sacrebleu", "tokenised", "compound-split", "compound-split-t2t", "chrf", "chrf++", "ter"),
    "summarisation": ("rouge-1", "rouge-2", "rouge-l"),
    "speech": ("wer",),
}
"""Default scores of each task, best-known first."""


def metric_named(name: str) -> Metric:
    """Return the score with the name ``name`` in ``--metrics``, ignoring case.

    Raises:
        UserError: there is none; the message has the nearest one.
    """
    if name.lower() not in METRICS:
        raise UserError(unknown_name("metric", name, METRICS))
    return METRICS[name.lower()]


def value_of(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lower_case: bool = False,
    resamples: int = 0,
) -> Value:
    """``metric`` of one output.

    ``references`` holds one list of sentences for each reference translation; ``resamples`` is the number of bootstrap
    resamples behind the 95 % interval, 0 for none.

    Raises:
        UserError: its library is not installed, or it has no interval.
    """
    return metric.build(lower_case).value(hypotheses, references, resamples)


def sacre_metric(metric: Metric, *, lower_case: bool) -> Any | None:
    """Return sacreBLEU's own object of ``metric``; None if another library computes it."""
    return getattr(metric.build(lower_case), "metric", None)
