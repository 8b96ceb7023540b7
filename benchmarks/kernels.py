"""Kernels that each method's training step launches for a pair of layers, and the memory that they read and write.

No GPU is needed: a step in bfloat16 is taken on the pretended GPU of ``tests/gpu``, at two depths, and the difference
is that of the layers alone. A number counts once in each kernel that reads or writes it. Attention, which a GPU fuses,
is counted as its parts, and dropout, whose parts here are three, is 0. Run it from the repository's root:
``PYTHONPATH=. python benchmarks/kernels.py --help``.
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from common import METHODS, Size, make_batch, make_model, make_task
from torch import Tensor
from torch.utils._pytree import tree_leaves

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
    """What a GPU makes of RMSNorm, which torch takes apart here: as many kernels as of a LayerNorm."""
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    base = of_a_pair(BASE)
    print("method\tlaunches\tto post_ln\tbytes a number\tto post_ln")
    for method in args.methods.split(","):
        launched, moved = of_a_pair(method)
        print(f"{method}\t{launched:.0f}\t{launched / base[0]:.2f}\t{moved:.0f}\t{moved / base[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
