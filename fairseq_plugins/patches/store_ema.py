"""``--store-ema`` loses norms from the average, counts tied weights twice, and differs or stops when it is resumed.

* The averaging omits the buffer ``version`` from the state that it loads into its copy of the model, and a stock stack
  without it removes ``layer_norm``, as one from before that LayerNorm existed. Here the copy keeps its versions. A
  training of stock fairseq goes on: lost values are taken from its float32 average, else from its last weights.
* A tensor is averaged under each of its names: at decay 0.9 tied embeddings move 0.19 or 0.271 of the way, not 0.1.
* A checkpoint without an average ends in "KeyError: 'model'": fairseq has deleted the weights by then.
* ``--ema-update-freq`` starts to count anew. The count follows from the number of all updates.
"""

import copy
import logging
from collections.abc import Callable, MutableMapping
from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils
from fairseq.models.ema.ema import EMA
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.checkpoints.provenance import loading
from fairseq_plugins.integrity import owners_of

logger = logging.getLogger(__name__)


def keep_versions(
    load: Callable[..., None], ema: EMA, state_dict: MutableMapping[str, Any] | None = None, *args: Any, **kwargs: Any
) -> None:
    """``EMA.restore`` and ``EMA.build_fp32_params``: the state of a step has no version, that of a file a wrong one.

    Entries that ``state_dict`` lacks keep their values, which are those of the model after a checkpoint is loaded.
    """
    if state_dict is not None:
        own = ema.model.state_dict()
        versions = {name: value for name, value in own.items() if name.rpartition(".")[2] == "version"}
        if lost := own.keys() - state_dict.keys() - versions.keys():
            logger.warning(
                f"the stored average of the weights lacks {', '.join(sorted(lost))}: they are taken from the float32 "
                "average of the same file (--ema-fp32), or from its last weights if it has no such average"
            )
        state_dict = copy.copy(state_dict)  # with torch's metadata
        state_dict.update(versions)
    load(ema, state_dict, *args, **kwargs)


def average_each_tensor_once(step: Callable[..., None], ema: EMA, new_model: Any, *args: Any, **kwargs: Any) -> None:
    """``EMA._step_internal``, which reads only the state dict of the model, with one name for each tensor."""
    state = new_model.state_dict()
    owners = owners_of({name: value for name, value in state.items() if isinstance(value, Tensor)})
    once = {name: value for name, value in state.items() if owners.get(name, name) == name}
    step(ema, SimpleNamespace(state_dict=lambda: once), *args, **kwargs)
    # The float32 copies are saved with the checkpoint under every name.
    copies = ema.fp32_params
    copies.update({name: copies[owner] for name, owner in owners.items() if owner in copies})


def weights_for_average(load: Callable[..., dict[str, Any]], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """``load_checkpoint_to_cpu``, whose state the first process sends to all others."""
    state = load(*args, **kwargs)
    reader = loading.get()
    if reader and reader[0].cfg.ema.store_ema and "ema" not in state["extra_state"]:
        logger.warning("the checkpoint has no average of the weights (--store-ema): it starts from the weights")
        state["extra_state"]["ema"] = state["model"]
    return state


def count_from_start(load: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.load_checkpoint``; without a file, it must not create the average before the first update."""
    extra_state = load(trainer, *args, **kwargs)
    average = trainer.cfg.ema
    if extra_state is not None and average.store_ema and average.ema_update_freq > 1:
        trainer.ema.update_freq_counter = trainer.get_num_updates() % average.ema_update_freq
    return extra_state


WRAPPED = (
    (EMA, "restore", keep_versions),
    (EMA, "build_fp32_params", keep_versions),
    (EMA, "_step_internal", average_each_tensor_once),
    (checkpoint_utils, "load_checkpoint_to_cpu", weights_for_average, 10),
    (Trainer, "load_checkpoint", count_from_start, 30),
)
