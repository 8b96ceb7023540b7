"""``--store-ema`` loses the LayerNorm on top of a Pre-LN stack from the averaged weights.

The averaging omits the buffer ``version`` from the state that it loads into its copy of the model, and a stock encoder
or decoder treats a state without it as one from before that LayerNorm existed: it removes ``layer_norm`` and writes
version 1. The stored average is then that of another model. Here the copy always keeps the versions of the model it was
made from. A training of stock fairseq still goes on: what it lost is taken from its float32 average if it has one, else
from its last weights.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from fairseq.models.ema.ema import EMA

logger = logging.getLogger(__name__)


def versions_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``state`` that say from which version of fairseq a stack is."""
    return {name: value for name, value in state.items() if name.rpartition(".")[2] == "version"}


def completed(state: MutableMapping[str, Any], versions: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """Return a copy of ``state`` with ``versions``, and with torch's metadata of the state."""
    copied = copy.copy(state)
    copied.update(versions)
    return copied


def restore_with_versions(
    restore: Callable[..., None], ema: EMA, state_dict: MutableMapping[str, Any], *args: Any, **kwargs: Any
) -> None:
    """``EMA.restore`` that never upgrades an old state: that of a step has no version, that of a file a wrong one.

    Entries that ``state_dict`` lacks keep their values, which are those of the model after a checkpoint is loaded.
    """
    own = ema.model.state_dict()
    # The state of a step lacks versions alone.
    if lost := own.keys() - state_dict.keys() - versions_of(own).keys():
        logger.warning(
            f"the stored average of the weights lacks {', '.join(sorted(lost))}: they are taken from the float32 "
            "average of the same file (--ema-fp32), or from its last weights if it has no such average"
        )
    restore(ema, completed(state_dict, versions_of(own)), *args, **kwargs)


def build_with_versions(
    build: Callable[..., None], ema: EMA, state_dict: MutableMapping[str, Any] | None = None, *args: Any, **kwargs: Any
) -> None:
    """``EMA.build_fp32_params``, whose tensors are those of the copy itself if that is in float32."""
    if state_dict is not None:
        state_dict = completed(state_dict, versions_of(ema.model.state_dict()))
    build(ema, state_dict, *args, **kwargs)


WRAPPED = ((EMA, "restore", restore_with_versions), (EMA, "build_fp32_params", build_with_versions))
