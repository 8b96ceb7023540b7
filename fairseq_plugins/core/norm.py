"""Norm place: where the LayerNorm of a sub-layer stands, and what stands in its place.

A part of this axis is built with ``build(shape) -> NormPlace``. ``pre`` has, as in stock fairseq, one more LayerNorm
at the top of the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fairseq.modules import LayerNorm
from torch import nn

from fairseq_plugins.core.method import Axis, Choices, Option, Part, Shape, register_part


def layer_norms(module: nn.Module) -> list[nn.Module]:
    """Every LayerNorm inside ``module``."""
    return [one for one in module.modules() if isinstance(one, nn.LayerNorm)]


class NormPlace(NamedTuple):
    """Where the norms of a stack stand. Without any of the three places a sub-layer has none.

    Attributes:
        before: one before each branch; it reads the stream.
        after: one after each sum.
        branch: one behind each branch and its dropout, before the sum.
        module: makes, from the width, what stands in the place of LayerNorm; by default LayerNorm itself.
        top: makes, from the width, what stands on top of the stack; by default nothing, but the LayerNorm of stock
            fairseq (unless ``--no-decoder-final-norm`` says otherwise) where norms stand before the branches.
    """

    before: bool = False
    after: bool = False
    branch: bool = False
    module: Callable[[int], nn.Module] | None = None
    top: Callable[[int], nn.Module] | None = None

    @property
    def nowhere(self) -> bool:
        """Whether a sub-layer has no norm."""
        return not (self.before or self.after or self.branch)

    @property
    def stock_top(self) -> bool:
        """Whether stock fairseq shall build its own LayerNorm on top."""
        return self.before and self.top is None


def _layer_norm(width: int) -> nn.Module:
    module: nn.Module = LayerNorm(width)
    return module


TOP_NORM = Option(
    "norm_on_top",
    "no",
    "one LayerNorm on top of each stack",
    choices=("no", "yes"),
)
"""For places that have none there by themselves."""


def _top(shape: Shape) -> Callable[[int], nn.Module] | None:
    return _layer_norm if shape.options.norm_on_top == "yes" else None


def _no_other_norm(choices: Choices, shape: Shape, config: Any) -> list[str]:
    if config.layernorm_embedding:
        return ["--norm none removes every LayerNorm, but --layernorm-embedding asks for one: drop one of the two"]
    return []


register_part(Part(Axis.NORM, "post", lambda shape: NormPlace(after=True), summary="LayerNorm after the sum"))
register_part(
    Part(Axis.NORM, "pre", lambda shape: NormPlace(before=True), summary="LayerNorm before the branch, one more on top")
)
register_part(
    Part(
        Axis.NORM,
        "branch",
        lambda shape: NormPlace(branch=True, top=_top(shape)),
        summary="LayerNorm on the branch, behind its dropout and before the sum",
        options=(TOP_NORM,),
        no_fold="stock fairseq has no LayerNorm between a branch and its sum",
    )
)
register_part(
    Part(
        Axis.NORM,
        "none",
        lambda shape: NormPlace(top=_top(shape)),
        summary="no LayerNorm in the layers",
        options=(TOP_NORM,),
        conflicts=_no_other_norm,
        no_fold="stock fairseq has no Transformer without LayerNorm",
    )
)
