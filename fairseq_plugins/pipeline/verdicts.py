"""The outcome of a run, in one or two words, and the reason."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path

from fairseq_plugins.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.pipeline.outcomes import (
    DIVERGED,
    FAILED_TO_TRAIN,
    OK,
    UNKNOWN,
    Verdict,
    entropy,
    learned_nothing,
    unigram_entropy,
)
from fairseq_plugins.pipeline.run import Run

NOT_FINISHED, NOT_EVALUATED = "not finished", "not evaluated"
LINES = 200_000
"""Number of training sentences for the token frequencies; more would not change the verdict."""


def judge(log: TrainingLog, unigram_entropy: float | None) -> Verdict:
    """Whether a training diverged (its loss was not finite) or failed to train (it learned only token frequencies).

    ``unigram_entropy`` is that of the training target text in subwords, in bits per token; None if unknown.
    """
    final = log.final_valid_loss
    if log.not_finite or log.ended_by_guard:
        return Verdict(log.failure, log.divergence)
    if final is None:
        return Verdict(UNKNOWN, "never validated")
    if unigram_entropy is None:
        return Verdict(UNKNOWN, f"valid loss {final:.2f} bits; the token frequencies of the training text are unknown")
    reason = f"valid loss {final:.2f} bits, token frequencies alone give {unigram_entropy:.2f}"
    return Verdict(FAILED_TO_TRAIN if learned_nothing(final, unigram_entropy) else OK, reason)


def verdict_on_training(run: Run) -> Verdict:
    """The verdict on a training, scored or not: not finite, not finished, nothing learned, or ok."""
    outcome = (run.finished or {}).get("outcome") or run.log.failure
    if outcome in (DIVERGED, FAILED_TO_TRAIN):
        return Verdict(outcome, str((run.finished or {}).get("reason") or run.log.divergence))
    if run.finished is None:
        wanted = updates_wanted(run)
        return Verdict(NOT_FINISHED, f"{run.updates:,} of {wanted:,} updates" if wanted else f"{run.updates:,} updates")
    return judge(run.log, _entropy(run))


def updates_wanted(run: Run) -> int | None:
    """Limit of updates, from ``run.json``, else from the log; None without a limit."""
    wanted = run.configured("optimization", "max_update")
    return wanted if isinstance(wanted, int) and wanted else run.log.max_update


def verdict_of(run: Run) -> Verdict:
    """The verdict on a run: that on its training, or ``not evaluated``."""
    verdict = verdict_on_training(run)
    if verdict.outcome in (DIVERGED, NOT_FINISHED):
        return verdict
    scored = any(evaluation.metrics for evaluation in run.evaluations.values())
    if verdict.outcome != FAILED_TO_TRAIN and not scored:
        return Verdict(NOT_EVALUATED, "fairseq-deep evaluate has not scored it")
    return verdict


def worst(outcomes: list[str]) -> str:
    """One cell for several runs: the common outcome, else each with the number of its runs."""
    distinct = sorted(set(outcomes), key=lambda outcome: (outcome != OK, outcome))
    if len(distinct) == 1:
        return distinct[0]
    return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in distinct)


def _entropy(run: Run) -> float | None:
    """Entropy of the target tokens of the training data, in bits; None if the data is missing."""
    if run.data is None:
        return None
    language = run.configured("task", "target_lang")
    return _of_text(run.data / "text" / f"train.{language}") if language else _of_dictionary(run.data)


@cache
def _of_text(path: Path) -> float | None:
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
            return unigram_entropy(islice(lines, LINES))
    except (OSError, ValueError):
        return None


@cache
def _of_dictionary(data: Path) -> float | None:
    """Entropy from a language model's dictionary, which has the counts of the training text."""
    try:
        lines = (data / "data-bin" / "dict.txt").read_text(encoding="utf-8").splitlines()
        return entropy(int(line.rsplit(" ", 1)[1]) for line in lines if " " in line)
    except (OSError, ValueError):
        return None
