"""Languages and dictionaries of a training: those in a checkpoint, and how they differ from those of a command.

Checkpoints of this package hold the languages and dictionaries of their training; those of stock fairseq have only the
languages.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from textwrap import shorten
from typing import Any

from fairseq_plugins.errors import UserError

SHOWN = 200
"""Characters of each of torch's lines in a message."""
LAST = "checkpoint_last.pt"
"""The newest checkpoint, the default of ``--restore-file``."""
LANGUAGES = ("source_lang", "target_lang")
DICTIONARIES = ("source_dictionary", "target_dictionary")
loading: ContextVar[tuple[Any, bool] | None] = ContextVar("loading", default=None)
"""The trainer for which a file is being read, and whether its optimizer starts anew."""


def settings_of(task: Any) -> Any:
    """Return the settings of a task, which older ones keep as ``args``; None if it has neither."""
    return getattr(task, "cfg", None) or getattr(task, "args", None)


def dictionaries(task: Any) -> dict[str, list[str]]:
    """Return the words of each dictionary of ``task``, in their order."""
    words = {}
    for name in DICTIONARIES:
        with suppress(AttributeError, NotImplementedError):  # this task has none
            words[name] = list(getattr(task, name).symbols)
    return words


def fingerprint(words: Sequence[str]) -> str:
    """Return a short hash of words and their order."""
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def trained_on(task: Any) -> dict[str, str]:
    """Return the languages of ``task``, and a fingerprint of each of its dictionaries."""
    facts = {name: str(value) for name in LANGUAGES if (value := getattr(settings_of(task), name, None))}
    return {**facts, **{name: fingerprint(words) for name, words in dictionaries(task).items()}}


def refuse_other_text(
    path: str | Path, stored: Mapping[str, str], now: Mapping[str, str], data: Any, more: str = ""
) -> None:
    """Raise a UserError if a checkpoint is of the opposite direction, or of other dictionaries than a task on ``data``.

    Another order of the same words is another dictionary. ``more`` is another way out, at the end of that line.
    """
    source, target = (stored.get(name) for name in LANGUAGES)
    if source and target and source != target and [now.get(name) for name in LANGUAGES] == [target, source]:
        raise UserError(
            f"checkpoint {path} translates {source} to {target}, not {target} to {source}: "
            f"give --source-lang {source} --target-lang {target}, or a checkpoint of the other direction"
        )
    changed = [name for name in DICTIONARIES if name in stored and name in now and stored[name] != now[name]]
    if changed:
        which = " and the ".join(name.replace("_", " ") for name in changed)
        raise UserError(
            f"checkpoint {path} was not trained with the {which} of {data} (other words, or another order): give the "
            f"directory that it was trained on, or binarise the text with its dictionaries (--srcdict, --tgtdict){more}"
        )


def phrases(values: Iterable[tuple[str, Any, Any]]) -> list[str]:
    """What changed, names without a group first, each once even if a group repeats the setting of another."""
    changes: dict[tuple[str, str], str] = {}
    for shown, old, new in sorted(values, key=lambda value: "." in value[0]):
        if old != new:
            change = f"{new}, was {old}"
            changes.setdefault((shown.rpartition(".")[2], change), f"{shown}: {change}")
    return list(changes.values())


def listed(changes: Sequence[str], most: int = 6) -> str:
    """Return the first phrases as one, with the number of the others."""
    more = f"; {len(changes) - most} more" if len(changes) > most else ""
    return f"{'; '.join(changes[:most])}{more}"


def other_weights(path: str, message: str) -> str | None:
    """Return the line for weights that do not fit a model, from the message of torch's ``load_state_dict``."""
    lines = [line for line in message.splitlines() if "key(s) in" in line or "size mismatch" in line]
    differing = "; ".join(shorten(line, SHOWN, placeholder=" …") for line in lines[:4])
    return f"checkpoint {path} is of another architecture or dictionary: {differing}" if differing else None
