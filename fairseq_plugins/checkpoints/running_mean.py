"""Mean of state dicts that arrive one at a time, in the memory of one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fairseq_plugins.checkpoints.files import owners_of
from fairseq_plugins.errors import UserError

CHUNK = 1 << 18
"""Numbers averaged at a time, so that memory beyond the mean does not grow with the largest tensor."""


class RunningMean:
    """Mean of state dicts, added one at a time and kept in float32 (float64 if the weights are float64).

    The mean is updated as ``mean + (x - mean) / n`` where that changes it, so the mean of equal tensors is that tensor
    to the bit, the sign of a zero included. A tensor that several names share is averaged once and stays shared. No
    state dict is kept, so the memory of a mapped file can be released.

    Args:
        measured: last name parts of floating-point tensors that were measured, not trained: they must be equal in all
            state dicts, since their mean would fit none of them.
    """

    def __init__(self, measured: Collection[str] = ()) -> None:
        self.measured = measured
        self._count, self._first_source = 0, ""
        self._owner: dict[str, str] = {}
        self._means: dict[str, Tensor] = {}
        self._kept: dict[str, Tensor] = {}
        self._first_kind: dict[str, tuple[torch.dtype, torch.Size]] = {}

    def add(self, weights: Mapping[str, Tensor], source: str) -> None:
        """Add one state dict; ``source`` names it in messages.

        Raises:
            UserError: keys, shapes, types, ties or measured values differ from the first.
        """
        if self._count == 0:
            self._start(weights, source)
        self._check(weights, source)
        self._count += 1
        for name, whole in self._means.items():
            pieces = torch.split(whole.view(-1), CHUNK)
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
        for name in list(self._means):
            finished[name] = self._means.pop(name).to(self._first_kind[name][0])
        return {name: finished[owner] for name, owner in self._owner.items()}

    def _start(self, weights: Mapping[str, Tensor], source: str) -> None:
        self._first_source = source
        self._owner = owners_of(weights)
        self._first_kind = {name: (tensor.dtype, tensor.shape) for name, tensor in weights.items()}
        for name in dict.fromkeys(self._owner.values()):
            tensor = weights[name]
            if tensor.is_floating_point() and name.rpartition(".")[2] not in self.measured:
                wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
                self._means[name] = torch.zeros(tensor.shape, dtype=wide)
            else:
                self._kept[name] = tensor.clone()

    def _check(self, weights: Mapping[str, Tensor], source: str) -> None:
        first = self._first_source
        for name in sorted(self._owner.keys() ^ weights.keys()):
            where, elsewhere = (first, source) if name in self._owner else (source, first)
            raise UserError(f"'{name}' is in {where} but not in {elsewhere}: checkpoints of different models")
        for name, owner in self._owner.items():
            tensor, (dtype, shape) = weights[name], self._first_kind[name]
            if (tensor.dtype, tensor.shape) != (dtype, shape):
                kinds = f"{dtype} {tuple(shape)} in {first} but {tensor.dtype} {tuple(tensor.shape)} in {source}"
                raise UserError(f"'{name}' is {kinds}: checkpoints of different models")
            if name != owner and not torch.equal(tensor, weights[owner]):
                raise UserError(f"'{name}' and '{owner}' are tied in {first} but differ in {source}")
            if name.rpartition(".")[2] in self.measured and not torch.equal(tensor, self._kept[owner]):
                raise UserError(
                    f"'{name}' differs between {first} and {source}: it is measured once in a training, "
                    "so these are checkpoints of different trainings"
                )
