"""A model translates, or a training starts from a model, with another dictionary or direction, without a message.

fairseq compares only the number of words, so every word has another word's embedding: the text is fluent, and wrong.
Here each checkpoint holds the languages and dictionaries of its training, and every command that loads a model compares
them with those that it uses. Checkpoints without them, such as stock fairseq's, are accepted, but not for the opposite
direction. https://github.com/facebookresearch/fairseq/issues/2124

A training that starts from a model, by ``--finetune-from-model`` or by ``--restore-file`` with ``--reset-optimizer``,
may have other words: each row of a table follows its word, and a new word keeps the row that the new model drew.
https://github.com/facebookresearch/fairseq/issues/1909
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.checkpoints import provenance
from fairseq_plugins.checkpoints.provenance import fingerprint, refuse_other_text, trained_on
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import TRAINED_ON, recorded, unchecked_content

NAMED = 5
"""Maximum number of words of each kind in a line."""
TABLE = re.compile(r"\b(embed_tokens|embed_out|output_projection|fc_out|fc3|lm_head)(\.weight(_[gv])?|\.bias)?$")
"""Weights of fairseq's models with a row for each word."""

logger = logging.getLogger(__name__)


def save_with_dictionaries(
    save: Callable[..., Any], trainer: Trainer, filename: str, extra_state: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.save_checkpoint`` that also records the dictionaries of the weights, each once by its fingerprint."""
    words = {fingerprint(symbols): "\n".join(symbols) for symbols in provenance.dictionaries(trainer.task).values()}
    return save(trainer, filename, {**extra_state, TRAINED_ON: {**trained_on(trainer.task), **words}}, *args, **kwargs)


def load_for_its_data(
    load: Callable[..., Any],
    filenames: Sequence[str],
    arg_overrides: Any = None,
    task: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """``load_model_ensemble_and_task``, or a UserError if ``task``, by default of the checkpoint, has other words."""
    # The vectors are in the checkpoint; the files that a training began with may be gone.
    arg_overrides = {"encoder_embed_path": None, "decoder_embed_path": None, **(arg_overrides or {})}
    # Weights for another number of words would end the loading, in a line that does not name the reason.
    loaded = load(filenames, arg_overrides, task, *args, **kwargs) if task is None else None
    task = loaded[-1] if loaded else task
    for name in filenames:
        stored: Mapping[str, str] = {}
        with suppress(Exception):  # loading the file reports more
            stored = recorded(unchecked_content(name))
        refuse_other_text(name, stored, trained_on(task), getattr(provenance.settings_of(task), "data", "the data"))
    return loaded or load(filenames, arg_overrides, task, *args, **kwargs)


def say_who_loads(
    load: Callable[..., Any], trainer: Trainer, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.load_checkpoint`` that records who loads."""
    before = provenance.loading.set((trainer, reset_optimizer))
    try:
        return load(trainer, filename, reset_optimizer, *args, **kwargs)
    finally:
        provenance.loading.reset(before)


def load_by_word(load: Callable[..., dict[str, Any]], path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """``load_checkpoint_to_cpu``, whose state the first process sends to all others.

    Raises:
        UserError: the words are others, and the optimizer, whose moments have rows, too, does not start anew; or the
            checkpoint is of a version that did not store words, or the model has tables of another form.
    """
    state = load(path, *args, **kwargs)
    if (reader := provenance.loading.get()) is None:
        return state
    (trainer, starts_anew), stored = reader, recorded(state)
    data, own = getattr(provenance.settings_of(trainer.task), "data", "the data"), trainer.get_model().state_dict()
    if not starts_anew:
        advice = f", or start a new training from its weights (--finetune-from-model {path})"
        refuse_other_text(path, stored, trained_on(trainer.task), data, advice)
        return state
    dictionaries = provenance.dictionaries(trainer.task)
    if dictionaries and not dictionaries.keys() & stored.keys():
        logger.warning(f"checkpoint {path} does not hold its dictionaries: its rows are used for the words of {data}")
        return state
    for name, words in dictionaries.items():
        tables, which = tables_of(own, name), name.replace("_", " ")
        if stored.get(name) != fingerprint(words):
            if stored.get(name) not in stored or not tables:
                raise UserError(
                    f"checkpoint {path} was not trained with the {which} of {data}, and its rows cannot follow their "
                    "words: it does not hold them, or the model has an adaptive input or softmax; binarise the text "
                    "with its dictionaries (--srcdict, --tgtdict)"
                )
            before = stored[stored[name]].split("\n")
            extra = state["extra_state"]
            for weights in (state["model"], extra.get("ema", {}), extra.get("ema_fp32_params", {})):
                weights.update({t: mapped(weights[t], own[t], before, words) for t in tables if t in weights})
            new, dropped = (sorted({*some} - {*others}) for some, others in ((words, before), (before, words)))
            changes = f"{len(new)} new words {new[:NAMED]}, {len(dropped)} dropped {dropped[:NAMED]}"
            logger.info(f"checkpoint {path}: {which}: {changes}")
    return state


def tables_of(own: dict[str, Tensor], dictionary: str) -> list[str]:
    """Return the names of the weights with a row for each word of ``dictionary``; none if some are in other parts."""
    source = "encoder." if any(name.startswith("encoder.") for name in own) else ""
    read = [name for name in own if TABLE.search(name) and "embed_tokens" in name and name.startswith(source)]
    if dictionary == provenance.DICTIONARIES[0]:
        return read
    adaptive = any(".adaptive_softmax." in name for name in own)
    return [] if adaptive else [name for name in own if TABLE.search(name) and name not in read]


def mapped(old: Tensor, new: Tensor, before: Sequence[str], after: Sequence[str]) -> Tensor:
    """Return ``(len(after), ...)`` rows: those of ``old`` for its words ``before``, those of ``new`` for others."""
    places = {word: row for row, word in enumerate(before)}
    rows, kept = new.detach().to(old.device, old.dtype, copy=True), [word in places for word in after]
    rows[kept] = old[[places[word] for word in after if word in places]]
    return rows


WRAPPED = (
    (Trainer, "save_checkpoint", save_with_dictionaries),
    (checkpoint_utils, "load_model_ensemble_and_task", load_for_its_data),
    (Trainer, "load_checkpoint", say_who_loads, 40),
    (checkpoint_utils, "load_checkpoint_to_cpu", load_by_word, 15),
)
