"""A training that starts from a model with another dictionary gives words the embeddings of other words.

``--finetune-from-model``, and ``--restore-file`` with ``--reset-optimizer``, load a table by its rows: a dictionary of
the same size in another order is accepted without a message, one of another size is refused. Here each row follows its
word, and a new word keeps the row that the new model drew. https://github.com/facebookresearch/fairseq/issues/1909
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.checkpoints import provenance
from fairseq_plugins.errors import UserError

NAMED = 5
"""Maximum number of words of each kind in a line."""
TABLE = re.compile(r"\b(embed_tokens|embed_out|output_projection|fc_out|fc3|lm_head)(\.weight(_[gv])?|\.bias)?$")
"""Weights of fairseq's models with a row for each word."""

logger = logging.getLogger(__name__)


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
    (trainer, starts_anew), stored = reader, provenance.recorded(state)
    data, own = getattr(provenance.settings_of(trainer.task), "data", "the data"), trainer.get_model().state_dict()
    if not starts_anew:
        advice = f", or start a new training from its weights (--finetune-from-model {path})"
        provenance.refuse_other_text(path, stored, provenance.trained_on(trainer.task), data, advice)
        return state
    dictionaries = provenance.dictionaries(trainer.task)
    if dictionaries and not dictionaries.keys() & stored.keys():
        logger.warning(f"checkpoint {path} does not hold its dictionaries: its rows are used for the words of {data}")
        return state
    for name, words in dictionaries.items():
        tables, which = tables_of(own, name), name.replace("_", " ")
        if stored.get(name) != provenance.fingerprint(words):
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
    (Trainer, "load_checkpoint", say_who_loads, 40),
    (checkpoint_utils, "load_checkpoint_to_cpu", load_by_word, 15),
)
