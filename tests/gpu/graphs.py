"""A CUDA graph of the pretended GPU: records what runs while it captures, and computes it again when it is replayed.

It is as strict as a real one, and stricter where a real one computes garbage:

* A host read, or a tensor that is sent from the host, while it captures is an error.
* Nothing that runs while it captures has an effect: tensors from before keep their numbers.
* Memory that it reads and that nobody else keeps is freed memory: an error at the next replay, as is another shape.
* Graphs share memory, so a replay overwrites the results of the other graphs of its pool.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

_pools = itertools.count(1)


def mapped(function: Callable[[Tensor], Any], values: Any) -> Any:
    """``values``, each tensor in it replaced by what ``function`` returns; ``tree_map`` of torch takes far longer."""
    if isinstance(values, Tensor):
        return function(values)
    if isinstance(values, (list, tuple)):
        return type(values)([mapped(function, value) for value in values])
    return {name: mapped(function, value) for name, value in values.items()} if type(values) is dict else values


def tensors(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(found.append, values)
    return found


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class PretendedGraph:
    """Takes the place of ``torch.cuda.CUDAGraph``.

    Attributes:
        calls: operation, arguments and results of every call, in main memory.
        capturing: the graph that captures now.
    """

    capturing: PretendedGraph | None = None
    of_pools: dict[int, list[PretendedGraph]] = {}

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._made: dict[int, Tensor] = {}
        self._read: dict[int, Tensor] = {}
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._pool = 0

    def record(self, func: Any, args: Any, kwargs: Any, compute: Any) -> Any:
        """Compute an operation of the host's program, and keep it."""
        # A product that is written into a tensor has the tensor among its keywords.
        for tensor in tensors((args, kwargs)):
            if storage_of(tensor) not in self._made:
                self._read.setdefault(storage_of(tensor), tensor.detach())
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.is_write:
                    self._keep(tensors(value))
            self._keep([value for a in func._schema.arguments if a.is_write for value in tensors(kwargs.get(a.name))])
        output = compute()
        for tensor in tensors(output):
            if storage_of(tensor) not in self._read:
                self._made[storage_of(tensor)] = tensor
        self.calls.append((func, *mapped(self._alias, (args, kwargs, output))))
        return output

    def _alias(self, value: Tensor) -> Tensor:
        """A tensor of this graph's own for memory from before, so that others who keep the memory can be told."""
        return value.detach() if storage_of(value) in self._read else value

    def _keep(self, written: list[Tensor]) -> None:
        for tensor in written:
            if storage_of(tensor) not in self._made:
                whole = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
                self._before.setdefault(storage_of(tensor), (whole, whole.clone()))

    def end(self) -> None:
        """Undo what ran while capturing, and count who holds what is read."""
        for tensor, before in self._before.values():
            tensor.copy_(before)
        self._before.clear()
        held = [tensor for call in self.calls for tensor in tensors(call[1:])] + list(self._read.values())
        self._ours = Counter(map(storage_of, {id(tensor): tensor for tensor in held}.values()))
        self.of_pools.setdefault(self._pool, []).append(self)

    def replay(self) -> None:
        """Compute all once more, on what its inputs hold now."""
        from tests.gpu.pretend import _random_state

        assert PretendedGraph.capturing is None
        for cdata, tensor in self._read.items():
            storage = tensor.untyped_storage()  # the one that asks, one more
            if torch._C._storage_Use_Count(storage._cdata) <= self._ours[cdata] + 1:
                raise AssertionError(f"a graph reads freed memory: {tuple(tensor.shape)} {tensor.dtype}")
        for other in self.of_pools[self._pool]:
            if other is not self:
                other.poison()
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            for func, args, kwargs, recorded in self.calls:
                with _random_state(func):
                    computed = func(*args, **kwargs)
                for old, new in zip(tensors(recorded), tensors(computed), strict=True):
                    assert old.shape == new.shape, f"{func} has another shape at replay: {new.shape}, not {old.shape}"
                    if old is not new and storage_of(old) != storage_of(new):
                        old.copy_(new)

    def poison(self) -> None:
        """Overwrite what was computed, as another graph may."""
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            for tensor in self._made.values():
                tensor.untyped_storage().fill_(0x7B)

    def reset(self) -> None:
        self.calls.clear()


@contextlib.contextmanager
def capture(graph: PretendedGraph, pool: int = 0, **_: Any) -> Iterator[None]:
    from tests.gpu import pretend

    assert PretendedGraph.capturing is None
    graph._pool, random = pool, dict(pretend._states)
    PretendedGraph.capturing = graph
    try:
        yield
    finally:
        PretendedGraph.capturing = None
        pretend._states.update(random)
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            graph.end()


def new_pool() -> int:
    return next(_pools)
