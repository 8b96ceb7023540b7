"""State of a training in RUN: ``run.json`` has its settings, and ``finished`` says how it ended.

A training completes, diverges, or fails with an error. A divergence is a result (the same training would diverge
again), so ``finished`` records the first two. A training may be continued, and a completed one may be made longer.
"""

import json
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.checkpoints.provenance import phrases
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.tools.pipeline.configuration import GROUPS_BY_NAME
from fairseq_plugins.tools.pipeline.fairseq_log import LogReader, error_message, floating_point_error, read_log
from fairseq_plugins.tools.pipeline.results import FINISHED, read_record
from fairseq_plugins.tools.unigram_entropy import DIVERGED

LIMITS = ("max_update", "max_epoch")
"""Settings of ``optimization`` that may grow, as with fairseq-train: the training then goes on. 0 is no limit."""
NOT_TO_CHANGE = ("precision", "tokens_per_update")


# --- which training it is -------------------------------------------------------------------------------------------


def check_unchanged(old: dict[str, Any], new: dict[str, Any], run: Path) -> None:
    """Raise a UserError if ``run`` has other settings; the machine may change, and the training become longer."""
    changed = [f"{name}: {new[name]}, was {old.get(name)}" for name in NOT_TO_CHANGE if old.get(name) != new[name]]
    if old.get("data_content") != new["data_content"]:
        changed.append("dictionaries or training files differ")
    before, after = dict(flat(old.get("configuration", {}))), dict(flat(new["configuration"]))
    # An older version had the rate of the branches there.
    rate = "model.embedding_dropout"
    if rate not in before and after.get(rate) not in (None, before.get("model.dropout")):
        before[rate] = None
    # A newer version may have new settings. Paths are not settings.
    own = before.keys() & after.keys() - {"task.data", "distributed_training.distributed_world_size"}
    # BLEU of validations, graphs and loggers change no weight.
    apart = ("task.eval_bleu", "common.cuda_graphs", "common.tensorboard_logdir", "common.wandb_project")
    own = {name for name in own if not name.startswith(apart)}
    if is_longer(old, new):
        own -= {f"optimization.{name}" for name in LIMITS}
    # The groups of a name repeat settings of the others, such as the rate.
    names = sorted(own, key=lambda name: (name.partition(".")[0] in GROUPS_BY_NAME, name))
    changed += phrases((name, before[name], after[name]) for name in names)
    if changed:
        raise UserError(
            f"{run}: contains a training with other settings ({'; '.join(changed)}); use another directory, "
            "or delete it"
        )


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries under their full names."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def is_longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether ``new`` has a larger limit than ``old``, and no smaller limit."""
    limits = [record.get("configuration", {}).get("optimization", {}) for record in (old, new)]
    before, after = ([settings.get(name) or math.inf for name in LIMITS] for settings in limits)
    return before != after and all(map(operator.le, before, after))


# --- how it ended ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """The end of a training after ``epochs`` begun; the reason of a completed one is empty."""

    num_updates: int
    epochs: int
    reason: str = ""
    outcome: str = DIVERGED

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 for a completed training, 1 for one that diverged."""
        return 1 if self.reason else 0

    def sentence(self) -> str:
        """One line for the user."""
        done = f"{self.num_updates} updates, {self.epochs} epoch{'s' if self.epochs != 1 else ''}"
        return f"{self.outcome} after {done} ({self.reason})" if self.reason else f"finished ({done})"


def finished(run: Path) -> Ending | None:
    """The content of ``RUN/finished``; None if the training has not ended, a UserError if the file is damaged."""
    try:
        return Ending(**read_record(run / FINISHED)) if (run / FINISHED).exists() else None
    except TypeError as error:
        raise UserError(f"{run / FINISHED}: damaged; delete it and run the command again") from error


def say_how_it_ended(run: Path, code: int, log: Path, since: int) -> Ending:
    """Write ``RUN/finished`` for a training that completed or diverged; a UserError with its own message if it failed.

    Earlier attempts wrote the first ``since`` bytes of the log.
    """
    whole = read_log(log)
    ending = Ending(whole.updates, whole.epochs)
    if code:
        attempt = LogReader(log, since)
        lines = list(attempt.lines())
        if attempt.log.ended_by_guard:
            ending = Ending(whole.updates, whole.epochs, attempt.log.divergence, attempt.log.failure)
        elif reason := floating_point_error(lines):
            ending = Ending(whole.updates, whole.epochs, reason)
        else:
            raise UserError(error_message(lines) or f"the training ended with code {code}; see {log}")
    record = asdict(ending) if ending.reason else {"num_updates": ending.num_updates, "epochs": ending.epochs}
    write_whole(run / FINISHED, json.dumps(record) + "\n")
    return ending
