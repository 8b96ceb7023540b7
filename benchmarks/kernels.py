"""Kernels that each method's training step launches for a pair of layers, and the memory that they read and write.

No GPU is needed: a step in bfloat16 is taken on the pretended GPU of ``tests/gpu``, at two depths, and the difference
is that of the layers alone. A number counts once in each kernel that reads or writes it. Attention, which a GPU fuses,
is counted as its parts, and dropout, whose parts here are three, is 0.

``--compiled`` names methods whose layers torch's inductor fuses, too, as with ``--compile-layers``, by its rules for a
CPU. Its kernels are counted after the fusion, products of matrices and attentions among them; none is made. Run it from
the repository's root: ``PYTHONPATH=. python benchmarks/kernels.py --help``.
"""

import argparse
import copy
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from common import METHODS, Size, make_batch, make_model, make_task
from torch import Tensor
from torch._inductor import compile_fx, config
from torch._inductor.ir import MultiOutput, NonOwningLayout
from torch._inductor.scheduler import NopKernelSchedulerNode
from torch.utils._pytree import tree_leaves

from fairseq_plugins.training import compiled_layers
from tests.gpu import pretend
from tests.recorded.launches import launches

BASE = "post_ln"
DEPTHS = (2, 4)
WIDTH, SENTENCES, LENGTH = 512, 16, 32
FLAGS = "--dropout 0 --attention-dropout 0 --activation-dropout 0".split()


def size_of(tensor: Tensor) -> int:
    """Bytes of a tensor in memory; one that repeats its numbers by its strides holds them once."""
    return min(tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size())


def one_kernel(x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """RMSNorm as on a GPU, where it has as many kernels as a LayerNorm; torch takes it apart here."""
    return F.layer_norm(x, shape, weight)


def counted(method: str, layers: int) -> tuple[int, int]:
    """Return launches and bytes of a forward and a backward pass, with so many layers on each side."""
    found = [0, 0]
    operate = pretend._operate

    def listen(func: Any, args: Any, kwargs: Any) -> Any:
        result = operate(func, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor) and leaf.is_cuda]
        if tensors and launches(func):
            found[0] += 1
            found[1] += sum(map(size_of, tensors))
        return result

    task = make_task(50)
    size = Size(layers, layers, WIDTH, WIDTH // 64, 50)
    model = make_model(f"{method}_transformer", size, task, FLAGS).cuda().to(torch.bfloat16)
    batch = make_batch(SENTENCES, LENGTH, 50, "cuda")

    def step() -> None:
        model(**batch["net_input"])[0].sum().backward()
        model.zero_grad()

    step()  # Admin measures, and masks grow
    with mock.patch.object(pretend, "_operate", listen), mock.patch.object(F, "rms_norm", one_kernel):
        step()
    return found[0], found[1]


def of_a_pair(method: str) -> tuple[float, float]:
    """Launches of an encoder layer and a decoder layer, and bytes for each number of a tensor (T, B, C)."""
    few, many = (pretend.on_gpu(counted, method, layers) for layers in DEPTHS)
    launched, moved = ((b - a) / (DEPTHS[1] - DEPTHS[0]) for a, b in zip(few, many, strict=True))
    return launched, moved / (SENTENCES * LENGTH * WIDTH)


class Fused(Exception):
    """Raised in place of the making of kernels, with what inductor would make."""


def stop(nodes: Any) -> Any:
    """Look at what inductor has fused."""
    raise Fused(nodes)


def kernels(nodes: Any) -> int:
    """Kernels of fused code. The parts of a concatenation are one, as they are on a GPU."""
    found = [n for n in nodes if not isinstance(n, NopKernelSchedulerNode) and not isinstance(n.node, MultiOutput)]
    layouts = [(n, getattr(n.node, "layout", None)) for n in found]
    return len({layout.view.get_name() if isinstance(layout, NonOwningLayout) else id(n) for n, layout in layouts})


def compiled_pair(method: str) -> int:
    """Kernels of a compiled encoder layer and a compiled decoder layer, neither of them the lowest."""
    launched = [0]

    def fuse(graph: Any, inputs: Any, **how: Any) -> Callable[..., Any]:
        eager, count = copy.deepcopy(graph), 0
        try:
            with config.patch(_post_fusion_custom_pass=stop, fx_graph_cache=False):
                compile_fx.compile_fx_inner(graph, inputs, **how)
        except Exception as error:  # torch wraps what is raised while it lowers
            fused = getattr(error, "inner_exception", error)
            if not isinstance(fused, Fused):
                raise
            count = kernels(fused.args[0])

        def run(args: Any) -> Any:
            launched[0] += count
            return eager(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def backend(graph: Any, inputs: Any) -> Any:
        return compile_fx.compile_fx(graph, inputs, inner_compile=fuse)

    torch._dynamo.reset()
    found = []
    for layers in (1, 2):
        launched[0] = 0
        model = make_model(f"{method}_transformer", Size(layers, layers, 64, 2, 50), make_task(50), FLAGS)
        inputs = make_batch(3, 5, 50)["net_input"]
        model.to(torch.bfloat16)(**inputs)  # Admin measures, and masks grow
        with mock.patch.object(compiled_layers, "BACKEND", backend):
            compiled_layers.CompiledLayers(model)
            model(**inputs, alignment_layer=-1)[0].sum().backward()  # no layer returns weights
        found.append(launched[0])
    return found[1] - found[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument(
        "--compiled", type=lambda text: text.split(","), default=[], help="methods; each takes a minute"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    base, of_base = of_a_pair(BASE), compiled_pair(BASE) if args.compiled else 0
    print("method\tlaunches\tlaunches to post_ln\tbytes\tbytes to post_ln\tcompiled\tcompiled to post_ln")
    for method in args.methods.split(","):
        launched, moved = of_a_pair(method)
        row = f"{method}\t{launched:.0f}\t{launched / base[0]:.2f}\t{moved:.0f}\t{moved / base[1]:.2f}"
        fused = compiled_pair(method) if method in args.compiled else 0
        print(row + (f"\t{fused}\t{fused / of_base:.2f}" if fused else "\t\t"), flush=True)


if __name__ == "__main__":
    main()
