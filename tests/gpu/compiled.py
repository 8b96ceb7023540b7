"""``torch.compile`` on a pretended GPU: each piece of compiled code is one kernel of it.

torch traces a call on the tensors in main memory that those of the GPU hold, and hands each piece of code, of a forward
or of a backward pass, to :func:`kernel`. A graph records these pieces with the tensors that they are called on. Its
replay calls them and nothing around them: neither the layer, nor torch's guards, nor code that is made later.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.gpu import pretend
from tests.gpu.graphs import PretendedGraph


def is_number(value: Any) -> bool:
    """Whether torch has made this of a number of Python: the host keeps it, and a kernel is launched with its value."""
    return isinstance(value, Tensor) and value.dtype == torch.float64 and value.dim() == 0


class Kernel:
    """A piece of compiled code as an operation, which may draw random numbers and write to what it is called on."""

    is_view, tags = False, (torch.Tag.nondeterministic_seeded,)
    _schema = types.SimpleNamespace(arguments=[types.SimpleNamespace(is_write=True, name="")], is_mutable=True)

    def __init__(self, code: Callable[..., Any], inputs: list[Any]) -> None:
        with _disable_current_modes():
            self._code, self._numbers = code, {i: x.clone() for i, x in enumerate(inputs) if is_number(x)}

    def __call__(self, inputs: list[Any]) -> Any:
        return self._code(*(self._numbers[i].clone() if i in self._numbers else x for i, x in enumerate(inputs)))


def launch(func: Any, args: Any, kwargs: Any) -> Any:
    """Compute an operation in main memory; a graph that captures records it."""
    pretend.LAUNCHES[0] += 1
    graph = PretendedGraph.capturing
    with _disable_current_modes(), torch.no_grad(), pretend._random_state(func):
        if graph is None:
            return func(*args, **kwargs)
        return graph.record(func, args, kwargs, lambda: func(*args, **kwargs))


def kernel(code: Any, _: Any) -> Callable[..., Any]:
    """A compiler for AOTAutograd, which keeps the operations as they are."""

    def run(inputs: list[Any]) -> Any:
        return launch(Kernel(code, inputs), ([None if is_number(value) else value for value in inputs],), {})

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


BACKEND = aot_autograd(fw_compiler=kernel)
"""Backend of ``torch.compile`` on the pretended GPU."""


OF_NUMBERS = (torch.ops.aten.lift_fresh.default, torch.ops.aten._to_copy.default)
"""How a number of Python becomes a tensor of the host."""


class _Between(pretend._Mode):
    """Torch's computations between pieces of code are operations of their own."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in OF_NUMBERS and not args[0].dim():
            return func(*args, **kwargs or {})
        return launch(func, args, kwargs or {})


class _Call(torch.autograd.Function):
    """A call whose own autograd is in main memory, of ``leaves``, which hold the numbers of the ``inputs``."""

    @staticmethod
    def forward(ctx: Any, call: Callable[[], Any], leaves: list[Tensor], *inputs: Any) -> Any:
        ctx.set_materialize_grads(False)
        with _disable_current_modes(), _Between(), torch.enable_grad():
            outputs = call()
        wrapped = tuple(pretend.GpuTensor(value.detach(), inputs[0].index) for value in outputs)
        ctx.mark_non_differentiable(*(one for one, o in zip(wrapped, outputs, strict=True) if not o.requires_grad))
        ctx.tape = leaves, outputs, inputs[0].index
        return wrapped

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        leaves, outputs, index = ctx.tape
        ends, given = zip(
            *((o, g.inner) for o, g in zip(outputs, gradients, strict=True) if g is not None), strict=True
        )
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        with _disable_current_modes(), _Between():
            found = iter(torch.autograd.grad(ends, wanted, given, allow_unused=True))
        of_all = (next(found) if leaf.requires_grad else None for leaf in leaves)
        return None, None, *(None if value is None else pretend.GpuTensor(value, index) for value in of_all)


def leaf_of(tensor: Any) -> Tensor:
    """The numbers of a tensor on the GPU, for another autograd."""
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(tensor.inner, tensor.requires_grad)
    return tensor.inner.detach().requires_grad_(tensor.requires_grad)


def compile(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``torch.compile`` of a function of a module and of tensors."""
    compiled = original(*args, **kwargs)

    def call(module: nn.Module, *args: Any) -> Any:
        flat, form = tree_flatten(args)
        stores = [store for one in module.modules() for store in (one._parameters, one._buffers, vars(one))]
        places = [(store, name, value) for store in stores for name, value in store.items()]
        held = [place for place in places if isinstance(place[-1], pretend.GpuTensor)]
        inputs = [*(value for *_, value in held), *(value for value in flat if isinstance(value, pretend.GpuTensor))]
        inputs = list({id(value): value for value in inputs}.values())
        leaves = {id(value): leaf_of(value) for value in inputs}
        forms = []

        def run() -> list[Tensor]:
            for store, name, value in held:
                store[name] = leaves[id(value)]
            try:
                result = compiled(module, *tree_unflatten([leaves.get(id(value), value) for value in flat], form))
            finally:
                for store, name, value in held:
                    store[name] = value
            values, form_of_result = tree_flatten(result)
            forms.append(([isinstance(value, Tensor) for value in values], form_of_result))
            return [value for value in values if isinstance(value, Tensor)]

        made = iter(_Call.apply(run, list(leaves.values()), *inputs))  # type: ignore[no-untyped-call]
        are_tensors, form = forms[0]
        return tree_unflatten([next(made) if is_tensor else None for is_tensor in are_tensors], form)

    return call
