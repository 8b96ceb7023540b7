"""A model translates in the wrong direction, or with a dictionary of the same size in another order, without a message.

fairseq compares only the number of words, so every word has another word's embedding: the text is fluent, and wrong.
Here each checkpoint holds the languages and dictionaries of its training, and every command that loads a model compares
them with those that it uses. Checkpoints without them, such as stock fairseq's, are accepted,
but not for the opposite direction. https://github.com/facebookresearch/fairseq/issues/2124
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugins.checkpoints.provenance import (
    TRAINED_ON,
    dictionaries,
    fingerprint,
    recorded,
    refuse_other_text,
    settings_of,
    trained_on,
)
from fairseq_plugins.integrity import unchecked_content


def save_with_dictionaries(
    save: Callable[..., Any], trainer: Trainer, filename: str, extra_state: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.save_checkpoint`` that also records the dictionaries of the weights, each once by its fingerprint."""
    words = {fingerprint(symbols): "\n".join(symbols) for symbols in dictionaries(trainer.task).values()}
    return save(trainer, filename, {**extra_state, TRAINED_ON: {**trained_on(trainer.task), **words}}, *args, **kwargs)


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
        with suppress(Exception):  # loading the file reports more
            stored = recorded(unchecked_content(name))
        refuse_other_text(name, stored, trained_on(task), getattr(settings_of(task), "data", "the data"))
    return loaded or load(filenames, arg_overrides, task, *args, **kwargs)


WRAPPED = (
    (Trainer, "save_checkpoint", save_with_dictionaries),
    (checkpoint_utils, "load_model_ensemble_and_task", load_for_its_data),
)
