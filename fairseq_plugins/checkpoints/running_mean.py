"""Mean of state dicts that arrive one at a time, in the memory of one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.checkpoints.files import memory_of
from fairseq_plugins.errors import UserError

CHUNK = 1 << 18
"""Numbers averaged at a time, so that memory beyond the mean does not grow with the largest tensor."""


@dataclass
class _Average:
    """A tensor's mean so far, in float32 or float64, and the type in which it is stored."""

    mean: Tensor
    stored_as: torch.dtype


@dataclass
class RunningMean:
    """Mean of state dicts, added one at a time and kept in float32 (float64 if the weights are float64).

    The mean is updated as ``mean + (x - mean) / n`` where that changes it, so the mean of equal tensors is that tensor
    to the bit, the sign of a zero included. A tensor that several names share is averaged once and stays shared. No
    state dict is kept, so the memory of a mapped file can be released.

    Args:
        measured: last name parts of floating-point tensors that were measured, not trained: they must be equal in all
            state dicts, since their mean would fit none of them.
    """

    measured: Collection[str] = ()
    _count: int = 0
    _first_source: str = ""
    _owner: dict[str, str] = field(default_factory=dict)
    _averages: dict[str, _Average] = field(default_factory=dict)
    _kept: dict[str, Tensor] = field(default_factory=dict)
    _described: dict[str, str] = field(default_factory=dict)

    def add(self, weights: Mapping[str, Tensor], source: str) -> None:
        """Add one state dict; ``source`` names it in messages.

        Raises:
            UserError: keys, shapes, types, ties or measured values differ from the first.
        """
        if self._count == 0:
            self._start(weights, source)
        self._check(weights, source)
        self._count += 1
        for name, average in self._averages.items():
            pieces = torch.split(average.mean.view(-1), CHUNK)
            for mean, new in zip(pieces, torch.split(weights[name].detach().reshape(-1), CHUNK), strict=True):
                if self._count == 1:
                    mean.copy_(new)
                else:
                    change = (new.to(mean.dtype) - mean).div_(self._count)
                    torch.where(change == 0, mean, mean + change, out=mean)
        for name in self._kept:
            if not weights[name].is_floating_point():
                self._kept[name] = weights[name].clone()

    def result(self) -> dict[str, Tensor]:
        """Return the mean in the stored types and order; what is not averaged comes from the newest state dict.

        The means are not copied: nothing can be added afterwards.
        """
        finished = dict(self._kept)
        for name in list(self._averages):
            average = self._averages.pop(name)
            finished[name] = average.mean.to(average.stored_as)
        return {name: finished[owner] for name, owner in self._owner.items()}

    def _start(self, weights: Mapping[str, Tensor], source: str) -> None:
        self._first_source = source
        first_name_of: dict[Any, str] = {}
        for name, tensor in weights.items():
            self._owner[name] = first_name_of.setdefault(memory_of(tensor), name)
        for name in dict.fromkeys(self._owner.values()):
            tensor = weights[name]
            self._described[name] = _describe(tensor)
            if tensor.is_floating_point() and not self._is_measured(name):
                wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
                self._averages[name] = _Average(torch.zeros(tensor.shape, dtype=wide), tensor.dtype)
            else:
                self._kept[name] = tensor.clone()

    def _is_measured(self, name: str) -> bool:
        return name.rpartition(".")[2] in self.measured

    def _check(self, weights: Mapping[str, Tensor], source: str) -> None:
        for name in sorted(self._owner.keys() ^ weights.keys()):
            sources = (self._first_source, source) if name in self._owner else (source, self._first_source)
            raise UserError(f"'{name}' is in {sources[0]} but not in {sources[1]}: checkpoints of different models")
        for name, owner in self._owner.items():
            ours, theirs = self._described[owner], _describe(weights[name])
            if ours != theirs:
                raise UserError(
                    f"'{name}' is {ours} in {self._first_source} but {theirs} in {source}: "
                    "checkpoints of different models"
                )
            if name != owner and not torch.equal(weights[name], weights[owner]):
                raise UserError(f"'{name}' and '{owner}' are tied in {self._first_source} but differ in {source}")
            if self._is_measured(name) and not torch.equal(weights[name], self._kept[owner]):
                raise UserError(
                    f"'{name}' differs between {self._first_source} and {source}: it is measured once in a training, "
                    "so these are checkpoints of different trainings"
                )


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
