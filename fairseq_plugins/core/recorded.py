"""Code shared by the CUDA graphs of training and of the search: which modules can be recorded, and what is kept."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

logger = logging.getLogger(__name__)

KNOWN = ("torch", "fairseq", "fairseq_plugins")
"""Packages whose modules compute nothing in Python that differs between two batches of a shape."""


def follows_updates(kind: type) -> bool:
    """Return whether modules of this class are told the number of updates, and do not just pass it on."""
    setter = getattr(kind, "set_num_updates", None)
    return setter is not None and setter.__module__ not in (
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

    Tables that grow and are replaced would otherwise be freed, and the memory given to somebody else. Nothing is held
    while it records: compiled layers take memory that no operation shows, and the next ones need the same memory.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._read: dict[int, StorageWeakRef] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let layers run as compiled; the tables that they read come from operations outside."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors_of([args, kwargs]):
            storage = tensor.untyped_storage()
            if tensor.is_cuda and storage._cdata not in self._read:
                self._read[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        return func(*args, **kwargs)

    def kept(self) -> list[Tensor]:
        """Return tensors of the memory that somebody has still; call this after the recording."""
        storages = [torch.UntypedStorage._new_with_weak_ptr(memory.cdata) for memory in self._read.values()]
        return [torch.empty(0, dtype=torch.uint8, device=one.device).set_(one) for one in storages if one is not None]


class NewHooks:
    """Says whether one of the modules has a hook that it had not at first: of recorder, guard or profilers."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = list(modules)
        self._own, self._asked = self._hooks(), RemovableHandle.next_id

    def __bool__(self) -> bool:
        """Ask the modules, but only after somebody has made a new hook."""
        if RemovableHandle.next_id == self._asked:
            return False
        now, hooked = RemovableHandle.next_id, self._hooks() != self._own
        self._asked = self._asked if hooked else now
        return hooked

    def _hooks(self) -> list[int]:
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        return [id(hook) for m in self._modules for kind in kinds for hook in getattr(m, kind).values()]


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
    """Recorded kernels and the result that a replay fills."""

    graph: Any
    result: Any  # each replay overwrites its tensors
    kept: list[Tensor]  # the memory that the kernels read


class RecordedGraphs:
    """Records kernels in one pool of memory, and proves each, until one raises or too many have other numbers.

    ``stopped`` says why then.

    Args:
        subject: what goes on without graphs then, for the line that says so.
        patience: number of recordings in a row that may have other numbers; the last one stops all recording.
    """

    def __init__(self, subject: str, patience: int = 1) -> None:
        self.stopped, self._subject = "", subject
        self._patience, self._refused = patience, 0
        self._pool: Any = None
        self._stream: Any = None
        self._unused: list[Any] = []

    def record(
        self, compute: Callable[[], Any], is_same: Callable[[Recording], bool], waits: Sequence[str] = ()
    ) -> Recording | None:
        """Record the kernels that ``compute`` launches; None, and a line in the log, if that fails or a replay differs.

        Args:
            compute: has been computed eagerly before; none of it runs now.
            is_same: replays the recording, and returns whether its numbers are those of the eager computation.
            waits: of the host in the eager computation; none can be recorded.
        """
        recording: Recording | None = None
        try:
            if waits:
                raise RuntimeError(waits[0])
            recording = self._recorded_now(compute)
            if is_same(recording):
                self._refused = 0
                return recording
            reason = "a replay has other numbers"
            self._refused += 1
            if self._refused < self._patience:
                logger.warning("%s computes one shape of a batch without CUDA graphs: %s", self._subject, reason)
                self._unused.append(recording.graph)  # torch loses a pool whose only graph is destroyed
                return None
        except Exception as error:  # torch, the driver and modules raise many kinds
            reason = why(error)
        recording = None  # else its memory is in use while the others give theirs back
        self.stop(reason)
        return None

    def _recorded_now(self, compute: Callable[[], Any]) -> Recording:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        # A stream of its own: a destroyed graph takes the working memory of matrix products on its stream along.
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        graph, inputs = torch.cuda.CUDAGraph(), Inputs()
        # Other threads load batches meanwhile, and ask the driver what they like. Where torch ends in an error, its own
        # context leaves the side stream in place.
        with torch.cuda.stream(torch.cuda.current_stream()):
            kind = {"pool": self._pool, "stream": self._stream, "capture_error_mode": "thread_local"}
            with torch.cuda.graph(graph, **kind), inputs:
                result = compute()
        return Recording(graph, result, inputs.kept())

    def stop(self, reason: str) -> None:
        """Go on without graphs, and say why."""
        self.stopped, self._pool, self._unused = reason, None, []
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


def why(error: BaseException) -> str:
    """Return the reason that an error gives, in one line."""
    return "out of memory" if out_of_memory(error) else " ".join(str(error).split()) or type(error).__name__
