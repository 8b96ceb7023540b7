"""The verdict on a training: did it diverge, fail to train, or train? In one or two words, with the reason."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.tools.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.tools.pipeline.results import Run
from fairseq_plugins.tools.unigram_entropy import FAILED_TO_TRAIN, entropy, learned_nothing

OK, UNKNOWN, NOT_FINISHED, NOT_EVALUATED = "ok", "unknown", "not finished", "not evaluated"
LINES = 200_000
"""Number of training sentences for the token frequencies; more would not change the verdict."""


class Verdict(NamedTuple):
    """Outcome of a training, one of the words above, and the reason."""

    outcome: str
    reason: str


def verdict_of(run: Run) -> Verdict:
    """The verdict on a run: not finite, not finished, nothing learned, not evaluated, or ok."""
    finished = run.finished or {}
    if outcome := finished.get("outcome"):
        return Verdict(outcome, str(finished.get("reason")))
    if run.finished is None and not run.log.failure:
        wanted = run.configured("optimization", "max_update") or run.log.max_update
        return Verdict(NOT_FINISHED, f"{run.updates:,} of {wanted:,} updates" if wanted else f"{run.updates:,} updates")
    verdict = judge(run.log, _entropy_of_targets(run.data, run.configured("task", "target_lang")))
    scored = [evaluation for evaluation in run.evaluations.values() if evaluation.metrics]
    if verdict.outcome not in (OK, UNKNOWN):
        return verdict
    # A checkpoint that the user named may be an earlier one.
    counts = [(each.test_set, each.decoding.get("updates")) for each in scored if "checkpoint" not in each.decoding]
    early = [f"{name} after {updates}" for name, updates in counts if updates not in (None, str(run.updates))]
    if early:
        reason = f"it was evaluated before its end ({', '.join(early)} of {run.updates} updates); delete the evaluation"
        return Verdict(NOT_EVALUATED, reason)
    if scored:
        return verdict
    return Verdict(NOT_EVALUATED, "fairseq-deep evaluate has not scored it")


def judge(log: TrainingLog, unigram_entropy: float | None) -> Verdict:
    """Whether a training diverged (NaN or infinite loss) or failed to train (no better than the unigram baseline).

    ``unigram_entropy``: of the training target text in subwords, in bits per token; None if unknown.
    """
    final = log.final_valid_loss
    if log.failure:
        return Verdict(log.failure, log.divergence)
    if final is None:
        return Verdict(UNKNOWN, "never validated")
    if unigram_entropy is None:
        return Verdict(UNKNOWN, f"valid loss {final:.2f} bits; the unigram baseline of the training text is unknown")
    reason = f"valid loss {final:.2f} bits, the unigram baseline is {unigram_entropy:.2f}"
    return Verdict(FAILED_TO_TRAIN if learned_nothing(final, unigram_entropy) else OK, reason)


def unigram_entropy(lines: Iterable[str]) -> float:
    """Entropy of the token distribution, in bits per token, with one ``</s>`` per line, as in fairseq.

    It is the loss of a model that has learned only token frequencies. A ValueError if there is no line.
    """
    counts: Counter[str | None] = Counter()
    for line in lines:
        counts.update(line.split())
        counts[None] += 1
    return entropy(counts.values())


@cache
def _entropy_of_targets(data: Path | None, language: str | None) -> float | None:
    """Entropy of the target tokens of the training data, in bits; None if the data is missing."""
    if data is None:
        return None
    try:
        # A language model's dictionary has the counts of the training text.
        path = data / (f"text/train.{language}" if language else "data-bin/dict.txt")
        with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
            if language:
                return unigram_entropy(islice(lines, LINES))
            return entropy(int(line.rsplit(" ", 1)[1]) for line in lines if " " in line)
    except (OSError, ValueError):
        return None
