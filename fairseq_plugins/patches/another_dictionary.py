"""A model translates in the wrong direction, or with a dictionary of the same size in another order, without a message.

fairseq compares only the number of words, so every word has another word's embedding: the text is fluent, and wrong.
Here each checkpoint holds the languages and dictionaries of its training, and every command that loads a model compares
them with those that it uses. Checkpoints without them, such as stock fairseq's, are accepted,
but not for the opposite direction. https://github.com/facebookresearch/fairseq/issues/2124
"""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import unchecked_content

TRAINED_ON = "trained_on"
"""Key of languages and dictionaries in a checkpoint's extra state; its configuration does not have them."""
LANGUAGES = ("source_lang", "target_lang")
DICTIONARIES = ("source_dictionary", "target_dictionary")


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


def save_with_dictionaries(
    save: Callable[..., Any], trainer: Trainer, filename: str, extra_state: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.save_checkpoint`` that also records the dictionaries of the weights, each once by its fingerprint."""
    words = {fingerprint(symbols): "\n".join(symbols) for symbols in dictionaries(trainer.task).values()}
    return save(trainer, filename, {**extra_state, TRAINED_ON: {**trained_on(trainer.task), **words}}, *args, **kwargs)


def recorded(state: Any) -> dict[str, str]:
    """Return what a checkpoint says of :func:`trained_on`: the languages alone if it is stock fairseq's."""
    if not isinstance(state, Mapping):
        return {}
    if stored := (state.get("extra_state") or {}).get(TRAINED_ON):
        return dict(stored)
    settings = (state.get("cfg") or {}).get("task") or state.get("args") or {}
    values = vars(settings) if isinstance(settings, Namespace) else settings
    return {name: str(values[name]) for name in LANGUAGES if values.get(name)}


def refuse_other_text(
    path: str | Path, stored: Mapping[str, str], now: Mapping[str, str], data: Any, more: str = ""
) -> None:
    """Compare what a checkpoint was trained on with the languages and dictionaries of a task, read from ``data``.

    ``more`` is another way out, at the end of a line about dictionaries.

    Raises:
        UserError: the task translates in the opposite direction, or a dictionary has other words, or the same words in
            another order.
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


def load_for_its_data(
    load: Callable[..., Any],
    filenames: Sequence[str],
    arg_overrides: Any = None,
    task: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """``load_model_ensemble_and_task`` after a comparison with ``task``; if it is None, it is made from the checkpoint.

    Raises:
        UserError: the model would translate in the opposite direction, or with dictionaries that are not its own.
    """
    # The vectors are in the checkpoint; the files that a training began with may be gone.
    arg_overrides = {"encoder_embed_path": None, "decoder_embed_path": None, **(arg_overrides or {})}
    # Weights for another number of words would end the loading, in a line that does not name the reason.
    loaded = load(filenames, arg_overrides, task, *args, **kwargs) if task is None else None
    task = loaded[-1] if loaded else task
    for name in filenames:
        stored: Mapping[str, str] = {}
        with suppress(Exception):  # what loads the file says more
            stored = recorded(unchecked_content(name))
        refuse_other_text(name, stored, trained_on(task), getattr(settings_of(task), "data", "the data"))
    return loaded or load(filenames, arg_overrides, task, *args, **kwargs)


WRAPPED = (
    (Trainer, "save_checkpoint", save_with_dictionaries),
    (checkpoint_utils, "load_model_ensemble_and_task", load_for_its_data),
)
