"""What CUDA graphs of training and of the search have in common: which modules can be recorded, and what is kept."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

logger = logging.getLogger(__name__)

KNOWN = ("torch", "fairseq", "fairseq_plugins")
"""Packages whose modules compute nothing in Python that differs between two batches of a shape."""


def follows_updates(kind: type) -> bool:
    """Return whether modules of this class are told the number of updates, and do not just pass it on."""
    told = getattr(kind, "set_num_updates", None)
    return told is not None and told.__module__ not in (
        "fairseq.models.fairseq_model",
        "fairseq.models.fairseq_encoder",
    )


def is_known(kind: type) -> bool:
    """Return whether a module is of a known package; of those that follow the updates, ours have buffers for that."""
    package = kind.__module__.partition(".")[0]
    return package == KNOWN[-1] or (package in KNOWN and not follows_updates(kind))


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in nested lists and dictionaries, in their order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


class Inputs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the memory that recorded kernels read, however soon the model drops it.

    Tables that grow and are replaced would otherwise be freed, and the memory given to somebody else.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[int, Tensor] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors_of([args, kwargs]):
            storage = tensor.untyped_storage()._cdata
            if storage not in self._made and tensor.is_cuda:
                self.kept[storage] = tensor
        output = func(*args, **kwargs)
        self._made.update(tensor.untyped_storage()._cdata for tensor in tensors_of(output))
        return output


@contextlib.contextmanager
def waits_noted() -> Iterator[list[str]]:
    """Collect the places inside at which the host waits for the GPU: a graph cannot, and an attempt breaks torch."""
    before, places = torch.cuda.get_sync_debug_mode(), list[str]()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode(before)
            waits = [one for one in seen if "synchronizing CUDA operation" in str(one.message)]
            places += [f"the host waits for the GPU at {one.filename}:{one.lineno}" for one in waits]


class Recording(NamedTuple):
    """Recorded kernels."""

    graph: Any
    result: Any  # of the recorded program; a replay overwrites its tensors
    kept: list[Tensor]  # the memory that the kernels read


class RecordedGraphs:
    """Records kernels in one pool of memory, and proves each, until an attempt fails; ``stopped`` says why then.

    Args:
        subject: what goes on without graphs then, for the line that says so.
    """

    def __init__(self, subject: str) -> None:
        self.stopped, self._subject = "", subject
        self._pool: Any = None

    def record(
        self, compute: Callable[[], Any], is_same: Callable[[Recording], bool], waits: Sequence[str] = ()
    ) -> Recording | None:
        """Record what ``compute`` launches; None, and the log says why, where it cannot be recorded or replayed.

        Args:
            compute: has been computed eagerly before; none of it runs now.
            is_same: replays the recording, and returns whether its numbers are those of the eager computation.
            waits: of the host in the eager computation; none can be recorded.
        """
        try:
            if waits:
                raise RuntimeError(waits[0])
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph, inputs = torch.cuda.CUDAGraph(), Inputs()
            # Other threads load batches meanwhile, and ask the driver what they like. Where torch ends in an error, its
            # own context leaves the side stream in place.
            with torch.cuda.stream(torch.cuda.current_stream()):
                with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"), inputs:
                    result = compute()
            recording = Recording(graph, result, list(inputs.kept.values()))
            if is_same(recording):
                return recording
            reason = "a replay has other numbers"
        except Exception as error:  # whatever torch, the driver or a module says
            reason = "out of memory" if out_of_memory(error) else " ".join(str(error).split()) or type(error).__name__
        self.stop(reason)
        return None

    def stop(self, reason: str) -> None:
        """Go on without graphs, and say why."""
        self.stopped, self._pool = reason, None
        self.forget()
        logger.warning("%s goes on without CUDA graphs: %s", self._subject, reason)

    def forget(self) -> None:
        """Drop all recordings; each class does this its own way."""


def equal(first: Any, second: Any) -> bool:
    """Return whether two tensors or numbers are the same; NaN equals NaN."""
    if not isinstance(first, Tensor):
        return bool(first == second)
    if not first.is_floating_point():
        return torch.equal(first, second)
    return bool(((first == second) | (first.isnan() & second.isnan())).all())


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device has too little memory."""
    return "out of memory" in str(error)
