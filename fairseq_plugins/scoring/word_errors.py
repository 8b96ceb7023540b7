"""Word error rate of recognised speech, as jiwer computes it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.scoring.corpus_metric import Value


class WordErrorRate:
    """Substitutions, deletions and insertions for each hundred words of the transcripts, over the whole test set."""

    def __init__(self, lower_case: bool) -> None:
        try:
            import jiwer
        except ImportError:
            raise UserError("WER needs jiwer: pip install 'fairseq-deep[speech]'") from None
        self.jiwer: Any = jiwer
        self.lower_case = lower_case

    def value(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> Value:
        """Return the rate in percent; words are separated by spaces, and punctuation is not removed.

        Raises:
            UserError: there are several references, or an interval was requested.
        """
        if resamples:
            raise UserError("--confidence: WER is computed without an interval; legal for BLEU, chrF and TER")
        if len(references) != 1:
            raise UserError(f"WER takes one reference, not {len(references)}")
        sides = [[line.lower() if self.lower_case else line for line in side] for side in (references[0], hypotheses)]
        found = self.jiwer.process_words(*sides)
        words = found.hits + found.substitutions + found.deletions
        case = "lc" if self.lower_case else "mixed"
        return Value(100 * float(found.wer), f"nrefs:1|case:{case}|jiwer:{version('jiwer')}", int(words))


def word_error_rate(lower_case: bool) -> WordErrorRate:
    """Build the score."""
    return WordErrorRate(lower_case)
