"""``torch.autocast`` on a pretended GPU, whose tensors autocast's own dispatch does not know.

The lists are those of https://docs.pytorch.org/docs/stable/amp.html ("CUDA Op-Specific Behavior"), and ``vecdot``,
which torch computes as a product of matrices.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.gpu.graphs import mapped, tensors

LOWER = (
    "__matmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d"
    " einsum linear matmul mm mv prelu scaled_dot_product_attention vecdot"
)
"""Run in half precision."""
FLOAT = (
    "__pow__ __rpow__ __rtruediv__ acos asin cosh cosine_similarity cross_entropy cumprod cumsum dist exp expm1"
    " group_norm kl_div l1_loss layer_norm log log10 log1p log2 log_softmax logsumexp mse_loss nll_loss norm normalize"
    " pow prod reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss softmax softplus sum tan"
)
"""Run in float32."""
WIDEST = "addcdiv addcmul bilinear cat dot index_put scatter_add stack tensordot"
"""Run in the widest type of their inputs."""


def casting(kind: type[Tensor]) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Owner, name and replacement of each function that casts its inputs of this ``kind``."""
    for policy, names in ((_lower, LOWER), (_float, FLOAT), (_widest, WIDEST)):
        for name in names.split():
            for owner in (torch, torch.linalg, F, Tensor):
                if hasattr(owner, name):
                    yield owner, name, _cast(getattr(owner, name), policy, kind)


def _cast(function: Any, policy: Callable[[set[torch.dtype]], torch.dtype], kind: type[Tensor]) -> Callable[..., Any]:
    def eligible(value: Tensor) -> bool:
        return isinstance(value, kind) and value.is_floating_point() and value.dtype != torch.float64

    # A name of torch's that its own code looks up.
    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled("cuda") or "out" in kwargs:
            return function(*args, **kwargs)
        found = {value.dtype for value in tensors((args, kwargs)) if eligible(value)}
        if not found:
            return function(*args, **kwargs)
        dtype = policy(found)
        args, kwargs = mapped(lambda value: value.to(dtype) if eligible(value) else value, (args, kwargs))
        return function(*args, **kwargs)

    return run


def _lower(found: set[torch.dtype]) -> torch.dtype:
    return torch.get_autocast_dtype("cuda")


def _float(found: set[torch.dtype]) -> torch.dtype:
    return torch.float32


def _widest(found: set[torch.dtype]) -> torch.dtype:
    return functools.reduce(torch.promote_types, found)
