"""The mean of the weights of several checkpoints, which must be of one model and one training."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fairseq_plugins.errors import UserError

CHUNK = 1 << 18
"""Numbers averaged at a time, so that memory beyond the mean does not grow with the largest tensor."""


class RunningMean:
    """Mean of state dicts, added one at a time and kept in float32 (float64 if the weights are float64).

    The mean is updated as ``mean + (x - mean) / n`` where that changes it, so the mean of equal tensors is that tensor
    to the bit, the sign of a zero included. A tensor that several names share is averaged once and stays shared. No
    state dict is kept, so the memory of a mapped file can be released.

    Args:
        first: the first state dict, whose names, types and shapes the others must have; :meth:`add` adds it like them.
        owners: the result of :func:`~fairseq_plugins.integrity.owners_of` for it.
        source: its name in messages.
        measured: leaf names of floating-point tensors that were measured, not trained. They must be equal in all state
            dicts, since their mean would fit none of them.
    """

    def __init__(
        self, first: Mapping[str, Tensor], owners: Mapping[str, str], source: str, measured: Collection[str] = ()
    ) -> None:
        self.measured = measured
        self._count, self._first_source, self._owner = 0, source, owners
        self._first_kind = {name: (tensor.dtype, tensor.shape) for name, tensor in first.items()}
        self._means: dict[str, Tensor] = {}
        self._kept: dict[str, Tensor] = {}
        for name in dict.fromkeys(owners.values()):
            tensor = first[name]
            if tensor.is_floating_point() and name.rpartition(".")[2] not in measured:
                dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
                self._means[name] = torch.zeros(tensor.shape, dtype=dtype)
            else:
                self._kept[name] = tensor.clone()

    def add(self, weights: Mapping[str, Tensor], source: str) -> None:
        """Add one state dict, ``source`` in messages; a UserError if it does not fit the first."""
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
        """Return the mean in the stored types and order; other entries come from the newest state dict.

        The means are not copied: nothing can be added afterwards.
        """
        finished = dict(self._kept)
        for name in list(self._means):
            finished[name] = self._means.pop(name).to(self._first_kind[name][0])
        return {name: finished[owner] for name, owner in self._owner.items()}

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
