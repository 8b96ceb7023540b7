"""May a directory be continued: does it hold the same training, a shorter one, or one that has lost its end?"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.configuration import GROUPS_BY_NAME
from fairseq_plugins.pipeline.ending import Ending

LIMITS = ("max_update", "max_epoch")
"""Settings of ``optimization`` that may grow, as with fairseq-train: the training then goes on. 0 is no limit."""
NOT_TO_CHANGE = ("config", "data_fingerprint", "precision", "tokens_per_update")


def is_lost(run: Path, ending: Ending, record: Mapping[str, Any]) -> bool:
    """Whether the last checkpoint of a finished training is an older one: its disk was away when it was written."""
    from fairseq_plugins.checkpoints.damaged import LAST
    from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint

    last = run / "checkpoints" / LAST
    at_its_limit = record["configuration"]["optimization"]["max_update"] == ending.num_updates
    if ending.reason or not at_its_limit or not last.is_file():
        return False
    try:
        return (num_updates(read_checkpoint(last)) or 0) < ending.num_updates
    except UserError:  # said by what uses it: a training that has ended has nothing left to do
        return False


def _limits(record: Mapping[str, Any]) -> list[float]:
    optimization = record.get("configuration", {}).get("optimization", {})
    return [optimization.get(name) or math.inf for name in LIMITS]


def is_longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a limit of ``new`` is above that of ``old``, and none is below."""
    before, after = _limits(old), _limits(new)
    return before != after and all(map(operator.le, before, after))


def changed_limits(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The limits that differ, each with its new and its old value."""
    before, after = (record["configuration"]["optimization"] for record in (old, new))
    pairs = {name: (after.get(name), before.get(name)) for name in LIMITS}
    return [f"optimization.{name}: {now}, was {then}" for name, (now, then) in pairs.items() if now != then]


def check_unchanged(old: dict[str, Any], new: dict[str, Any], run: Path) -> None:
    """Check that ``run`` continues with its old settings; the machine may change, and the training become longer.

    Raises:
        UserError: settings differ; they are named.
    """
    changed = [
        f"{name}: {_short(new[name])}, was {_short(old.get(name))}"
        for name in NOT_TO_CHANGE
        if old.get(name) != new[name]
    ]
    # An older version did not record the content; the fingerprint differs where a size does.
    if not changed and "data_content" in old and old["data_content"] != new["data_content"]:
        changed.append(f"data_content: {_short(new['data_content'])}, was {_short(old['data_content'])}")
    before, after = dict(_flat(old.get("configuration", {}))), dict(_flat(new["configuration"]))
    # A newer version may have new settings. Paths are not settings.
    own = before.keys() & after.keys() - {"task.data", "distributed_training.distributed_world_size"}
    # Whether a validation translates changes no weight.
    own = {name for name in own if not name.startswith("task.eval_bleu")}
    if is_longer(old, new):
        own -= {f"optimization.{name}" for name in LIMITS}
    # Some settings are copied from group to group (the learning rate); report each change once.
    differences: dict[tuple[str, str], str] = {}
    for name in sorted(own, key=lambda name: (name.partition(".")[0] in GROUPS_BY_NAME, name)):
        if before[name] != after[name]:
            change = f"{after[name]}, was {before[name]}"
            differences.setdefault((name.rpartition(".")[2], change), f"{name}: {change}")
    changed += differences.values()
    if changed:
        raise UserError(
            f"{run}: contains a training with other settings ({'; '.join(changed)}); use another directory, "
            "or delete it"
        )


def _short(value: Any) -> str:
    """The value; only the beginning of a fingerprint."""
    text = str(value)
    return text if len(text) != 64 else f"{text[:12]}…"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries under their full names."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_record(run: Path) -> dict[str, Any] | None:
    """The content of ``run.json``; None if no training was started.

    Raises:
        UserError: the file is damaged.
    """
    file = run / "run.json"
    if not file.exists():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not JSON ({error}); use another directory, or delete it") from error
    if not isinstance(record, dict):
        raise UserError(f"{file}: not a JSON object; use another directory, or delete it")
    return record
