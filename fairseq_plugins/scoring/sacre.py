"""BLEU, chrF and TER as sacreBLEU computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

from fairseq_plugins.scoring.corpus_metric import Value


class SacreMetric:
    """A metric of sacreBLEU, in :class:`~fairseq_plugins.scoring.corpus_metric.CorpusMetric`'s form."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def value(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> Value:
        """Return the corpus score, with the interval of sacreBLEU's own bootstrap."""
        score = self.metric.corpus_score(list(hypotheses), [list(one) for one in references], max(1, resamples))
        interval: float | None = float(score._ci) if resamples > 1 else None
        length = getattr(score, "ref_len", None)
        return Value(
            float(score.score), str(self.metric.get_signature()), None if length is None else int(length), interval
        )


# `force` only silences sacreBLEU's own remark about tokenised text, which would come once more for each metric.


def bleu(lower_case: bool) -> SacreMetric:
    """BLEU of plain text with WMT's tokenisation (13a)."""
    return SacreMetric(BLEU(lowercase=lower_case, force=True))


def bleu_of_tokens(lower_case: bool) -> SacreMetric:
    """BLEU as ``multi-bleu.perl`` computes it: tokens as given, no smoothing.

    ``fairseq-generate`` prints up to 0.03 more: its compiled scorer counts some n-grams that do not match.
    """
    return SacreMetric(BLEU(lowercase=lower_case, force=True, tokenize="none", smooth_method="none"))


def chrf(word_order: int) -> Callable[[bool], SacreMetric]:
    """chrF, or chrF++ with ``word_order`` 2."""  # noqa: D403
    return lambda lower_case: SacreMetric(CHRF(word_order=word_order, lowercase=lower_case))


def ter(lower_case: bool) -> SacreMetric:
    """Translation edit rate, which ignores case by definition."""
    return SacreMetric(TER())
