"""A GPU that is only said to be there: fairseq and this package take their branches for GPUs, and a CPU does the work.

Inside of :func:`gpu`, ``torch.cuda`` has devices. A tensor on one of them is a :class:`GpuTensor`: it says that it lies
on ``cuda:0``, and holds a tensor in main memory, with which every operation is computed. Three things show that a CPU
hides:

- **Mixed devices** are an error, with the operation and the line, where a GPU has it.
- **Waits**: places where the host waits for the GPU, because it reads a number or sends one without ``non_blocking``.
- **Promotions**: places where half precision meets a tensor in float32 and is lost without a word.

What a GPU computes differently, its memory and its speed do not show. With ``REAL_GPU=1`` these tests run on the GPU of
this machine: nothing is pretended, and the same waits and promotions are counted.

How it is done: to autograd the tensors lie on torch's ``meta`` device, since a build of torch without CUDA refuses to
differentiate on ``cuda``. Below autograd each operation arrives at :func:`_operate`, by the tensors or by a mode that
also catches the operations which make tensors. Above it, a few functions that do not arrive there are replaced.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import torch
import torch._dynamo  # which torch imports with the first operation that is caught: here once for all copies
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gpu import autocast
from tests.gpu.graphs import PretendedGraph, capture, mapped, new_pool, tensors

HALF = (torch.float16, torch.bfloat16)
REAL = bool(os.environ.get("REAL_GPU"))
_is_available = torch.cuda.is_available
if REAL:
    torch.cuda.is_available = lambda: False  # outside of gpu()
_aten = torch.ops.aten
COPIES = {_aten.copy_.default, _aten._to_copy.default, _aten._foreach_copy_.default}
INDEXED = {_aten.index.Tensor, _aten.index_put_.default, _aten._index_put_impl_.default, _aten.index_put.default}
"""Operations whose indices may lie in main memory."""
READING = {
    getattr(_aten, name)
    for name in "_local_scalar_dense nonzero masked_select equal is_nonzero _unique2 unique_dim unique_consecutive "
    "bincount linalg_eigh _linalg_eigh linalg_svd _linalg_svd".split()
}
"""Operations for whose result, or its size, the host waits."""
NOT_OURS = (os.sep + "torch" + os.sep, __file__, autocast.__file__, contextlib.__file__, "<")


def _mm(left: Tensor, right: Tensor, out_dtype: torch.dtype) -> Tensor:
    return torch.mm(left.to(out_dtype), right.to(out_dtype))


_only_of_gpus = torch.library.Library("aten", "IMPL")
_only_of_gpus.impl("mm.dtype", _mm, "CPU")  # which torch has for GPUs alone


class Seen:
    """Events since the GPU began, or since :meth:`forget`: how often, by place.

    Attributes:
        reads: the host waited for a result.
        sends: the host waited until a number had arrived.
        promotions: an operation on half precision and float32.
    """

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.sends: Counter[str] = Counter()
        self.promotions: Counter[str] = Counter()

    def wait(self, places: Counter[str]) -> None:
        """Count a wait; with ``torch.cuda.set_sync_debug_mode`` it is reported, too.

        Raises:
            RuntimeError: a graph is capturing.
        """
        places[place()] += 1
        if PretendedGraph.capturing is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing, at {place()}")
        if _debug_mode[0]:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)

    def forget(self) -> None:
        for places in (self.reads, self.sends, self.promotions):
            places.clear()


SEEN = Seen()
LAUNCHES = [0]
"""How many operations were computed on the GPU; a view is counted, too."""
_debug_mode = [0]


def place() -> str:
    """The innermost line of a program that is not torch's, such as ``fairseq/trainer.py:963 train_step``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in NOT_OURS):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    parts = path.parts
    name = path.name
    for root in ("fairseq", "fairseq_cli", "fairseq_plugins", "tests"):
        if root in parts[:-1]:
            name = "/".join(parts[len(parts) - 1 - parts[::-1].index(root) :])
    return f"{name}:{frame.f_lineno} {frame.f_code.co_name}"


class GpuTensor(Tensor):
    """A tensor on a pretended GPU; ``inner`` holds its numbers, ``index`` is the number of the GPU."""

    inner: Tensor
    index: int
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor, index: int) -> GpuTensor:
        tensor: GpuTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="meta",
        )
        tensor.inner, tensor.index = inner, index
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _operate(func, args, kwargs or {})

    device = property(lambda self: torch.device("cuda", self.index))  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = is_meta = property(lambda self: False)  # type: ignore[assignment]

    def get_device(self) -> int:
        return self.index

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, other: GpuTensor) -> None:
        assert (other.shape, other.dtype, other.device) == (self.shape, self.dtype, self.device)
        self.inner = other.inner

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def new(self, *sizes: Any) -> Tensor:  # type: ignore[override]
        return torch.empty(*sizes, dtype=self.dtype, device=self.device)

    def type(self, dtype: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return self.to(dtype) if dtype else self.inner.type().replace("torch.", "torch.cuda.")

    def resize_(self, *sizes: Any) -> Tensor:  # type: ignore[override]
        torch.utils.swap_tensors(self, GpuTensor(self.inner.resize_(*sizes), self.index))
        return self

    def __getitem__(self, index: Any) -> Tensor:  # type: ignore[override]
        return super().__getitem__(self._sent(index))

    def __setitem__(self, index: Any, value: Any) -> None:  # type: ignore[override]
        super().__setitem__(self._sent(index), value)

    def _sent(self, index: Any) -> Any:
        """An index without lists, of which C++ would make tensors past the mode."""
        if isinstance(index, tuple):
            return tuple(map(self._sent, index))
        return torch.tensor(index, device=self.device) if isinstance(index, list) else index

    def tolist(self) -> Any:
        SEEN.wait(SEEN.reads)
        return self.inner.tolist()

    def numpy(self, **_: Any) -> Any:  # type: ignore[override]
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor first."
        )

    __array__ = numpy  # type: ignore[assignment]

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        SEEN.wait(SEEN.reads)
        return f"{self.inner!r} on {self.device}"

    def __format__(self, form: str) -> str:
        return format(self.item() if self.dim() == 0 else repr(self), form)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copied = self.detach().clone()
            copied.__dict__.update({key: value for key, value in self.__dict__.items() if key not in vars(copied)})
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.inner.__reduce_ex__(protocol)


class _Mode(TorchDispatchMode):
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _operate(func, args, kwargs or {})


class _Watch(TorchDispatchMode):
    """Counts what operations of a real GPU show."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat = tensors((args, kwargs))
        on_gpu = [value for value in flat if value.is_cuda]
        device = kwargs.get("device")
        wanted = device is not None and device.type == "cuda"
        if on_gpu or wanted:
            _look(func, args, kwargs, flat, on_gpu, wanted)
        return func(*args, **kwargs)


def _operate(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation in main memory, unless torch would refuse it on a GPU."""
    flat = tensors((args, kwargs))
    on_gpu = [value for value in flat if isinstance(value, GpuTensor)]
    assert not any(value.is_meta for value in flat), f"a tensor without numbers, made past the pretended GPU: {func}"
    device = kwargs.get("device")
    # Where C++ asks a tensor on the GPU for its device, it hears of the meta device.
    wanted = device is not None and device.type in ("cuda", "meta")
    if not on_gpu and not wanted:
        return func(*args, **kwargs)
    index = on_gpu[0].index if on_gpu else torch.cuda.current_device()
    if device is not None and device.type == "cuda" and device.index is not None:
        index = device.index
    _look(func, args, kwargs, flat, on_gpu, wanted)
    known = {id(_inner(value)): value for value in flat}

    def wrapped(value: Tensor) -> Tensor:
        if id(value) in known:
            _refuse_another_shape(known[id(value)], value, func)
            return known[id(value)]
        return GpuTensor(value, index) if device is None or wanted else value

    args, kwargs = mapped(_inner, (args, kwargs))
    kwargs.pop("pin_memory", None)
    if wanted:
        kwargs["device"] = torch.device("cpu")
    LAUNCHES[0] += 1
    with _random_state(func):
        if (graph := PretendedGraph.capturing) is not None:
            return mapped(wrapped, graph.record(func, args, kwargs, lambda: func(*args, **kwargs)))
        return mapped(wrapped, func(*args, **kwargs))


def _inner(value: Tensor) -> Tensor:
    return value.inner if isinstance(value, GpuTensor) else value


def _refuse_another_shape(outer: Tensor, inner: Tensor, func: Any) -> None:
    """The wrapper's own shape cannot change."""
    if isinstance(outer, GpuTensor) and outer.shape != inner.shape:
        raise NotImplementedError(f"the pretended GPU cannot change a shape in place: {func}")


def _look(func: Any, args: Any, kwargs: Any, flat: list[Tensor], on_gpu: Sequence[Tensor], wanted: bool) -> None:
    """Count waits and promotions.

    Raises:
        RuntimeError: the operation mixes devices.
    """
    if func in COPIES:
        host_waits = not kwargs.get("non_blocking") and not (len(args) > 2 and args[2] is True)
        source = flat[-1]
        to_gpu = wanted or (len(flat) > 1 and flat[0].is_cuda)
        to_host = not to_gpu and (kwargs.get("device") is not None or len(flat) > 1)
        if source.is_cuda and to_host and host_waits:
            SEEN.wait(SEEN.reads)
        if not source.is_cuda and to_gpu and host_waits:
            SEEN.wait(SEEN.sends)
        return
    devices = {value.device for value in on_gpu}
    devices |= {value.device for value in _that_must_match(func, args, flat) if value.dim()}
    if len(devices) > 1:
        found = " and ".join(sorted(map(str, devices), reverse=True))
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {found}! "
            f"({func} at {place()})"
        )
    if func.overloadpacket in READING or _reads_a_mask(func, args):
        SEEN.wait(SEEN.reads)
    types = {value.dtype for value in on_gpu if value.dim() and value.is_floating_point()}
    if torch.float32 in types and types & set(HALF) and not _in_rms_norm():
        SEEN.promotions[place()] += 1


def _in_rms_norm() -> bool:
    """Whether torch computes RMSNorm, which it takes apart on this machine; on a GPU one kernel widens inside."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code is not F.rms_norm.__code__:
        frame = frame.f_back
    return frame.f_code is F.rms_norm.__code__


def _that_must_match(func: Any, args: Any, flat: list[Tensor]) -> list[Tensor]:
    if func not in INDEXED or not args[0].is_cuda:
        return flat
    indices = {id(value) for value in args[1]}
    return [value for value in flat if id(value) not in indices]


def _reads_a_mask(func: Any, args: Any) -> bool:
    """Whether the host must know how many are true; a single number is written through a mask without asking."""
    if func not in INDEXED:
        return func == _aten.repeat_interleave.Tensor
    masks = [value for value in args[1] if value is not None and value.dtype in (torch.bool, torch.uint8)]
    fills = func is not _aten.index.Tensor and args[2].numel() == 1 and len(masks) == 1
    return bool(masks) and not fills


# Random numbers: a GPU has a generator of its own ---------------------------------------------------------------------

_states: dict[int, Tensor] = {}
_current = [0]


@contextlib.contextmanager
def _random_state(func: Any) -> Iterator[None]:
    """Draw from the GPU's generator, whose place the one of the CPU takes for as long."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        yield
        return
    of_cpu, index = torch.default_generator.get_state(), _current[0]
    torch.default_generator.set_state(_states[index])
    try:
        yield
    finally:
        _states[index] = torch.default_generator.get_state()
        torch.default_generator.set_state(of_cpu)


def _number(device: Any = None) -> int:
    if isinstance(device, int):
        return device
    index = torch.device("cuda" if device is None else device).index
    return _current[0] if index is None else index


def _manual_seed(seed: int, device: Any = None) -> None:
    _states[_number(device)] = torch.Generator().manual_seed(int(seed)).get_state()


def _manual_seed_all(seed: int) -> None:
    for index in _states:
        _manual_seed(seed, index)


# torch.cuda -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _device(device: Any) -> Iterator[None]:
    before, _current[0] = _current[0], _number(device)
    try:
        yield
    finally:
        _current[0] = before


def _synchronize(device: Any = None) -> None:
    SEEN.wait(SEEN.reads)


class _Stream:
    """Takes the place of a stream and its events: whoever waits before more is launched waits for the whole GPU."""

    def record_event(self) -> _Stream:
        self.launched = LAUNCHES[0]
        return self

    def synchronize(self) -> None:
        if LAUNCHES[0] == self.launched:
            SEEN.wait(SEEN.reads)


def _nothing(*_: Any, **__: Any) -> None:
    pass


PROPERTIES = types.SimpleNamespace(
    name="Pretended GPU", total_memory=80 * 2**30, major=9, minor=0, multi_processor_count=100
)
KINDS = {"FloatTensor": torch.float32, "DoubleTensor": torch.float64, "ByteTensor": torch.uint8}
"""Classes of tensors with which fairseq makes some."""


def _legacy(dtype: torch.dtype) -> Callable[..., Tensor]:
    def make(*sizes: Any) -> Tensor:
        if sizes and not isinstance(sizes[0], int):
            return torch.tensor(sizes[0], dtype=dtype, device="cuda")
        return torch.empty(*(sizes or (0,)), dtype=dtype, device="cuda")

    return make


def _torch_cuda(count: int) -> dict[str, Any]:
    """Substitutes for attributes of ``torch.cuda``."""
    nothing = "_lazy_init init empty_cache reset_peak_memory_stats reset_max_memory_allocated ipc_collect"
    figures = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved"
    return {
        **dict.fromkeys(nothing.split(), _nothing),
        **dict.fromkeys(figures.split(), lambda device=None: 2**30),
        **{name: _legacy(dtype) for name, dtype in KINDS.items()},
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "is_bf16_supported": lambda including_emulation=True: True,
        "device_count": lambda: count,
        "current_device": lambda: _current[0],
        "set_device": lambda device: _current.__setitem__(0, _number(device)),
        "device": _device,
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_name": lambda device=None: PROPERTIES.name,
        "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
        "memory_summary": lambda device=None, abbreviated=False: "",
        "synchronize": _synchronize,
        "CUDAGraph": PretendedGraph,
        "graph": capture,
        "graph_pool_handle": new_pool,
        "get_sync_debug_mode": lambda: _debug_mode[0],
        **dict.fromkeys(("current_stream", "Stream"), _Stream),
        "stream": lambda stream: contextlib.nullcontext(),
        "set_sync_debug_mode": lambda mode: _debug_mode.__setitem__(0, int(mode not in (0, "default"))),
        "manual_seed": _manual_seed,
        "manual_seed_all": _manual_seed_all,
        "get_rng_state": lambda device=None: _states[_number(device)].clone(),
        "set_rng_state": lambda state, device=None: _states.__setitem__(_number(device), state.cpu().clone()),
    }


# Functions that would ask a driver for the device, or that make a tensor past the mode --------------------------------


def _is_gpu(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")


def _full(value: Any) -> Any:
    """A device as torch takes it where it can ask a driver: a bare number and a missing number are filled in."""
    if isinstance(value, int) and not isinstance(value, bool):
        return torch.device("cuda", value)
    return torch.device("cuda", _number(value)) if _is_gpu(value) else value


def _to(to: Callable[..., Tensor], self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``Tensor.to``; a tensor that is there already is returned as it is."""
    if args:
        args = (_full(args[0]), *args[1:])
    if "device" in kwargs:
        kwargs["device"] = _full(kwargs["device"])
    device = kwargs.get("device") or (args[0] if args and isinstance(args[0], torch.device) else None)
    if isinstance(self, GpuTensor) and device == self.device:
        kwargs.pop("device", None)
        args = args[1:] if args and args[0] == device else args
        dtype = kwargs.pop("dtype", None) or (args[0] if args else None)
        copied = kwargs.get("copy") or (len(args) > 2 and args[2])
        if (dtype is None or dtype == self.dtype) and not copied:
            return self
        return to(self, dtype or self.dtype, copy=bool(copied))
    return to(self, *args, **kwargs)


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, **_: Any) -> Tensor:
    return self.to(torch.device("cuda", _number(device)), non_blocking=non_blocking)


def _tensor(tensor: Callable[..., Tensor], data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
    """``torch.tensor``: what is built in main memory and then sent."""
    requires_grad = kwargs.pop("requires_grad", False)
    if isinstance(data, GpuTensor):
        made: Tensor = data.detach().clone().to(kwargs.get("dtype") or data.dtype)
        return made if device is None else made.to(device)
    if isinstance(data, (list, tuple)) and any(isinstance(value, GpuTensor) for value in data):
        data = [value.item() if isinstance(value, GpuTensor) else value for value in data]
    made = tensor(data, **kwargs)
    if device is not None and _is_gpu(_full(device)):
        made = made.to(device)
    return made.requires_grad_(requires_grad)


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    made = data if isinstance(data, Tensor) else torch.tensor(data)
    made = made if dtype is None else made.to(dtype)
    return made if device is None else made.to(device)


def _new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
    return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, **kwargs)


def _compile(*args: Any, **kwargs: Any) -> Any:
    from tests.gpu import compiled

    return compiled.compile(*args, **kwargs)


def _apply(apply: Callable[..., nn.Module], self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """``Module._apply``: a parameter stays the same object when it moves, as it does with a GPU."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return apply(self, *args, **kwargs)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _with_gloo(init: Callable[..., None], backend: str | None = None, **kwargs: Any) -> None:
    """``init_process_group``, with gloo in the place of NCCL."""
    init(backend="gloo" if backend == "nccl" else backend, **kwargs)


def _around(original: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(original, *args, **kwargs)


@contextlib.contextmanager
def gpu(count: int = 1) -> Iterator[Seen]:
    """Pretend that there are so many GPUs, or take the real one; yields what is seen of them."""
    SEEN.forget()
    if REAL:
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(torch.cuda, "is_available", _is_available))
            # Tensors that it builds in main memory and sends do not reach the mode otherwise.
            stack.enter_context(mock.patch.object(torch, "tensor", _around(torch.tensor, _tensor)))
            stack.enter_context(_Watch())
            yield SEEN
        return
    _current[0] = 0
    _states.update({index: torch.Generator().manual_seed(0).get_state() for index in range(count)})
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(torch.cuda, create=True, **_torch_cuda(count)))
        for owner, name, function in (
            (Tensor, "to", _around(Tensor.to, _to)),
            (Tensor, "cuda", _cuda),
            (Tensor, "new_tensor", _new_tensor),
            (Tensor, "pin_memory", lambda self, device=None: self),
            (torch, "Generator", _around(torch.Generator, lambda generator, device=None: generator())),
            (torch, "tensor", _around(torch.tensor, _tensor)),
            (torch, "as_tensor", _as_tensor),
            (torch, "compile", _around(torch.compile, _compile)),
            (nn.Module, "_apply", _around(nn.Module._apply, _apply)),
            (dist, "init_process_group", _around(dist.init_process_group, _with_gloo)),
            (dist, "get_backend", lambda group=None: "nccl"),
            *autocast.casting(GpuTensor),
        ):
            stack.enter_context(mock.patch.object(owner, name, function))
        stack.enter_context(_Mode())
        yield SEEN


def on_gpu(function: Callable[..., Any], *args: Any, count: int = 1, **kwargs: Any) -> Any:
    """The result of ``function`` with so many GPUs, in a copy of this process, on which it leaves no trace.

    Raises:
        AssertionError: with the other process's trace.
    """
    if REAL:  # CUDA does not run in a copy of a process that has asked for its devices
        try:
            with gpu(count):
                return function(*args, **kwargs)
        except Exception as error:
            raise AssertionError(traceback.format_exc()) from error
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            try:
                with gpu(count):
                    value = function(*args, **kwargs)
                sent = pickle.dumps((value, ""))
            except BaseException:
                sent = pickle.dumps((None, traceback.format_exc()))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(sent)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)  # after every outcome: the copy runs no test of its own
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        sent = pipe.read()
    os.waitpid(pid, 0)
    value, trace = pickle.loads(sent) if sent else (None, "the process died")
    assert not trace, trace
    return value


Test = TypeVar("Test", bound=Callable[..., Any])


def pretended(test: Test) -> Test:
    """Run a test with one GPU, as :func:`on_gpu` does."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        on_gpu(test, *args, **kwargs)

    return run  # type: ignore[return-value]
