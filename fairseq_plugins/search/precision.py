"""``--decode-precision``: the linear maps of a model in another form on a CPU; everything else stays float32.

float32_packed: only the order of the weights is another. bfloat16: weights, inputs and outputs have 8 bits of
precision, sums are float32. int8: weights are rounded to 255 levels with one scale an output, inputs to 256 levels with
one scale a product, found from its largest and smallest number. All by PyTorch's own kernels (oneDNN). A map's weights
are packed once, in the order in which the kernel reads them.

Legend: I and O inputs and outputs of a map.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.core.linear_maps import MapWith, affine_form, call_maps
from fairseq_plugins.errors import UserError
from fairseq_plugins.processor import has_bf16

FLOAT32, PACKED, BF16, INT8 = "float32", "float32_packed", "bf16", "int8"
PRECISIONS = (FLOAT32, PACKED, BF16, INT8)
ENGINES = ("onednn", "x86", "fbgemm", "qnnpack")
"""PyTorch's int8 engines, the fastest first."""
ROWS = 64
"""Rows for which bfloat16 weights are packed; about those of 16 sentences with a beam of 4."""


class LowLinear(nn.Module):
    """A map from float32 to float32 whose weights are packed once, for oneDNN; computes in ``dtype``.

    Args:
        weight: ``(O, I)``, float32.
        bias: ``(O)``, float32, or None.
        dtype: float32 or bfloat16, of weights, inputs and outputs.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.size()
        self.dtype = dtype
        self.bias = None if bias is None else bias.to(dtype)
        self.weight = self.pack(weight)

    def pack(self, weight: Tensor) -> Any:
        """Return the weights in the order in which the kernel reads them."""
        return torch.ops.mkldnn._reorder_linear_weight(weight.to(self.dtype).contiguous(), ROWS)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., I)`` to ``(..., O)``."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.weight, self.bias, "none", [], "")
        return product.float()


class Int8Linear(LowLinear):
    """Weights in int8 with one scale an output; inputs are quantised as they come."""

    def pack(self, weight: Tensor) -> Any:
        """Return the weights and the bias in the order in which the kernel reads them."""
        self.seven_bits = products_overflow()
        return _packed(weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., I)`` to ``(..., O)``."""
        product: Tensor = torch.ops.quantized.linear_dynamic(x, self.weight, self.seven_bits)
        return product


def _packed(weight: Tensor, bias: Tensor | None) -> Any:
    scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        # PyTorch's quantised tensors are deprecated; its dynamic int8 product takes no others yet.
        warnings.simplefilter("ignore", UserWarning)
        quantised = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = int8_engine()
    try:
        return torch.ops.quantized.linear_prepack(quantised, bias)
    finally:
        torch.backends.quantized.engine = engine


@functools.cache
def products_overflow() -> bool:
    """Whether two products of bytes overflow the 16 bits that some kernels add them in; 7 bits of an input do not.

    That is so without VNNI. A kernel may have less than the processor has (``ONEDNN_MAX_CPU_ISA``), so it is tried.
    """
    if not torch.cpu._is_vnni_supported():
        return True
    ones = torch.ones(64, 64)
    product: Tensor = torch.ops.quantized.linear_dynamic(ones, _packed(ones, None), False)
    return not torch.allclose(product, ones @ ones, rtol=0.02)


KINDS: dict[str, Callable[[Tensor, Tensor | None], LowLinear]] = {
    PACKED: LowLinear,
    BF16: functools.partial(LowLinear, dtype=torch.bfloat16),
    INT8: Int8Linear,
}


def int8_engine() -> str:
    """Return the fastest int8 engine of this PyTorch; a UserError if it has none."""
    for engine in ENGINES:
        if engine in torch.backends.quantized.supported_engines:
            return engine
    raise UserError("--decode-precision int8: this PyTorch has no int8 kernels for this CPU; use float32")


def computes_bf16() -> bool:
    """Whether this CPU computes in bfloat16; others emulate it, which is slow."""
    return bool(has_bf16()) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def refuse_impossible(model: nn.Module, precision: str) -> None:
    """Check that this machine can run the model in this precision, or raise a UserError."""
    weight = next(model.parameters())
    if weight.device.type != "cpu":
        raise UserError(f"--decode-precision {precision} is for CPUs: drop it, or add --cpu; on a GPU use --fp16")
    if weight.dtype != torch.float32:
        raise UserError(f"--decode-precision {precision} lowers float32 weights, and these are {weight.dtype}")
    if precision == BF16 and not computes_bf16():
        raise UserError(
            "--decode-precision bf16: this CPU has no bfloat16 instructions and would emulate them; use int8"
        )
    if precision == PACKED and not torch.backends.mkldnn.is_available():
        raise UserError("--decode-precision float32_packed: this PyTorch is built without oneDNN; use float32")
    if precision == INT8:
        int8_engine()


@torch.no_grad()
def lower(model: nn.Module, precision: str) -> int:
    """Replace the linear maps of ``model`` in place, which cannot be trained afterwards; returns their number.

    A subclass of ``nn.Linear`` that does not state its weight and bias stays as it is. A UserError says that this
    machine cannot run the model in this precision.
    """
    refuse_impossible(model, precision)
    model.eval()
    replaced: dict[nn.Module, nn.Module] = {}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.Linear):
                continue
            if child not in replaced:
                form = (child.weight, child.bias) if isinstance(child, MapWith) else affine_form(child)
                if form is None:
                    continue
                low = KINDS[precision](*(None if tensor is None else tensor.detach() for tensor in form))  # type: ignore[arg-type]
                replaced[child] = child.around(low) if isinstance(child, MapWith) else low
            setattr(parent, name, replaced[child])
        if isinstance(parent, MultiheadAttention):
            call_maps(parent)
    return len(replaced)
