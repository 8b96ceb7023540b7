"""``--store-ema`` loses the LayerNorm on top of a Pre-LN stack from the averaged weights.

The averaging omits the buffer ``version`` from the state that it loads into its copy of the model, and a stock encoder
or decoder treats a state without it as one from before that LayerNorm existed: it removes ``layer_norm`` and writes
version 1. The stored average is then that of another model. Here the copy always keeps the versions of the model it was
made from. A file from before this patch still loads: what it lost is taken from its float32 average if it has one, else
from its last weights.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from fairseq import checkpoint_utils
from fairseq.models.ema.ema import EMA

from fairseq_plugins.patches.wrapping import wrap

logger = logging.getLogger(__name__)


def _is_version(name: str) -> bool:
    return name.rpartition(".")[2] == "version"


def _versions(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if _is_version(name)}


def _older(state: Mapping[str, Any], versions: Mapping[str, Any]) -> bool:
    """Return whether ``state`` has a version that is not in ``versions``; copies may differ in type and device."""
    return any(name in state and state[name].tolist() != value.tolist() for name, value in versions.items())


def _with(versions: Mapping[str, Any], state: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return a copy of ``state`` with ``versions``, and with torch's metadata of the state."""
    completed = copy.copy(state)
    completed.update(versions)
    return completed


def _warn(names: Iterable[str]) -> None:
    logger.warning(
        f"the stored average of the weights lacks {', '.join(sorted(names))}: they are taken from the float32 "
        "average of the same file (--ema-fp32), or from its last weights if it has no such average"
    )


def restore_with_versions(
    restore: Callable[..., None], ema: EMA, state_dict: MutableMapping[str, Any], *args: Any, **kwargs: Any
) -> None:
    """``EMA.restore`` that never upgrades an old state: that of a step has no version, that of a file a wrong one.

    Entries that ``state_dict`` lacks keep their values, which are those of the model after a checkpoint is loaded.
    """
    own = ema.model.state_dict()
    versions = _versions(own)
    if _older(state_dict, versions) and (lost := own.keys() - state_dict.keys()):
        _warn(lost)
    restore(ema, _with(versions, state_dict), *args, **kwargs)


def build_with_versions(
    build: Callable[..., None], ema: EMA, state_dict: MutableMapping[str, Any] | None = None, *args: Any, **kwargs: Any
) -> None:
    """``EMA.build_fp32_params``, whose tensors are those of the copy itself if that is in float32."""
    if state_dict is not None:
        state_dict = _with(_versions(ema.model.state_dict()), state_dict)
    build(ema, state_dict, *args, **kwargs)


def load_complete(load: Callable[..., dict[str, Any]], fpath: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """``load_ema_from_checkpoint``, which returns the average as a separate model."""
    state = load(fpath, *args, **kwargs)
    average = state["model"]
    if not any(value.eq(1).all() for value in _versions(average).values()):
        return state
    weights = checkpoint_utils.load_checkpoint_to_cpu(fpath)["model"]
    lost = weights.keys() - average.keys()
    if lost:
        _warn(lost)
        best = {**weights, **state["extra_state"].get("ema_fp32_params", {})}
        average.update({name: best[name] for name in lost}, **_versions(weights))
    return state


def apply() -> None:
    """Wrap both functions that write the average, and the one that reads it from a file."""
    wrap(EMA, "restore", restore_with_versions)
    wrap(EMA, "build_fp32_params", build_with_versions)
    wrap(checkpoint_utils, "load_ema_from_checkpoint", load_complete)
