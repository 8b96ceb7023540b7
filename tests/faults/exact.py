"""Values that must agree, bit for bit, if two trainings are the same."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

OF_A_TRAINING = ("train_iterator", "ema", "ema_fp32_params", "divergence_guard", "should_stop_early")
"""Entries of a checkpoint's extra state that go on in a resumed training; the others are times and meters."""


def state_of(checkpoint: Path) -> dict[str, Any]:
    """Weights, moments, averages and positions in a checkpoint."""
    state = torch.load(checkpoint, weights_only=True)
    last = state["optimizer_history"][-1]
    return {
        "model": state["model"],
        "optimizer": state["last_optimizer_state"],
        "schedule": last["lr_scheduler_state"],
        "updates": last["num_updates"],
        **{name: state["extra_state"].get(name) for name in OF_A_TRAINING},
    }


def differences(one: Any, other: Any) -> list[str]:
    """The names of what differs in two nested states."""
    here, there = dict(_leaves(one)), dict(_leaves(other))
    names = [*here, *(name for name in there if name not in here)]
    return [name for name in names if name not in here or name not in there or not _equal(here[name], there[name])]


def _leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(state, (Mapping, list, tuple)):
        # So that an empty one differs from none, and names in another order from these.
        yield f"{name}.keys", list(state) if isinstance(state, Mapping) else len(state)
        for key, value in state.items() if isinstance(state, Mapping) else enumerate(state):
            yield from _leaves(value, f"{name}.{key}")
    else:
        yield name, state


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)
