"""A failing update once more, under hooks that find the place where it fails. Nothing of the training changes by it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch import nn

from fairseq_plugins.observe.guard.places import FirstNotFinite

REPEATING = "divergence_repeating"
"""Attribute of a trainer that is set while an update is repeated."""


class LeftUpdate(Exception):
    """Leaves an update before its step; none of fairseq's handlers catches it."""


class Repeated(LeftUpdate):
    """Leaves an update that was repeated only to find the place."""


def repeat(train_step: Callable[..., Any], trainer: Trainer, samples: Any) -> FirstNotFinite:
    """Compute the update once more until its gradients are complete, with the same dropout; every process calls this.

    Returns:
        What the hooks have seen.
    """
    search = FirstNotFinite(trainer.get_model())
    reset_factor(trainer.optimizer)
    setattr(trainer, REPEATING, True)
    try:
        with kept_buffers(trainer.get_model()), contextlib.suppress(Repeated), search.hooked(), balanced_meters():
            train_step(trainer, samples)
    finally:
        delattr(trainer, REPEATING)
    return search


def leave_if_repeated(trainer: Trainer) -> None:
    """End a repeated update here, where its gradients are complete.

    Raises:
        Repeated: the update is only repeated.
    """
    if getattr(trainer, REPEATING, False):
        raise Repeated


@contextlib.contextmanager
def balanced_meters() -> Iterator[None]:
    """Close fairseq's meters if an update is left; fairseq itself would not."""
    counts = dict(metrics._active_aggregators_cnt)
    active = dict(metrics._active_aggregators)
    try:
        yield
    except LeftUpdate:
        metrics._active_aggregators_cnt.clear()
        metrics._active_aggregators_cnt.update(counts)
        metrics._active_aggregators.clear()
        metrics._active_aggregators.update(active)
        raise


@contextlib.contextmanager
def kept_buffers(model: nn.Module) -> Iterator[None]:
    """Restore the buffers of ``model`` at the end: they must not count a repeated forward pass twice."""
    buffers = [buffer.clone() for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(before)


def reset_factor(optimizer: Any) -> None:
    """Reset the factor by which a dropped update has multiplied its gradients.

    fairseq's optimizer for bfloat16 keeps that beside the gradients until a step, and ``zero_grad`` leaves it there.
    """
    if hasattr(optimizer, "_multiply_factor") and optimizer.scaler is None:
        optimizer._multiply_factor = 1.0
