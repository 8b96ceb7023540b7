"""ROUGE of summaries, as rouge-score computes it.

F1 with Porter stems, like ROUGE-1.5.5 ``-m``; with several references the best one counts. Words are runs of a-z and
0-9, so it is for English. ROUGE-L treats the summary as one sentence, as headlines are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

from fairseq_plugins.errors import UserError
from fairseq_plugins.scoring.corpus_metric import Value


class Rouge:
    """The mean over all summaries of one kind of ROUGE (``rouge1``, ``rouge2``, ``rougeL``), in points."""

    def __init__(self, kind: str) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise UserError("ROUGE needs rouge-score: pip install 'fairseq-deep[summarisation]'") from None
        self.kind = kind
        self.scorer = RougeScorer([kind], use_stemmer=True)

    def value(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> Value:
        """Return the mean F1.

        Raises:
            UserError: an interval was requested.
        """
        if resamples:
            raise UserError("--confidence: ROUGE is computed without an interval; legal for BLEU, chrF and TER")
        total = 0.0
        for summary, *targets in zip(hypotheses, *references, strict=True):
            total += self.scorer.score_multi(targets, summary)[self.kind].fmeasure
        signature = f"nrefs:{len(references)}|case:lc|stem:porter|rouge-score:{version('rouge-score')}"
        return Value(100 * total / len(hypotheses), signature)


def rouge(kind: str) -> Callable[[bool], Rouge]:
    """Return the builder of one kind; rouge-score always lower-cases."""
    return lambda lower_case: Rouge(kind)
