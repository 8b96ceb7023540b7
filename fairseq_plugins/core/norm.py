"""Norm place: where the LayerNorm of a sub-layer stands.

A part of this axis is built with ``build() -> NormPlace``. ``pre`` has, as in stock fairseq, one more LayerNorm
at the top of the stack.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple

from fairseq_plugins.core.method import Axis, Choices, Part, Shape, register_part


class NormPlace(NamedTuple):
    """Whether a LayerNorm stands before the branch, after the sum, or (neither) nowhere."""

    before: bool
    after: bool


def _no_other_norm(choices: Choices, shape: Shape, config: Any) -> List[str]:
    if config.layernorm_embedding:
        return ["--norm none removes every LayerNorm, but --layernorm-embedding asks for one: drop one of the two"]
    return []


register_part(Part(Axis.NORM, "post", lambda: NormPlace(False, True), summary="LayerNorm after the sum"))
register_part(
    Part(Axis.NORM, "pre", lambda: NormPlace(True, False), summary="LayerNorm before the branch, one more on top")
)
register_part(
    Part(
        Axis.NORM,
        "none",
        lambda: NormPlace(False, False),
        summary="no LayerNorm at all",
        conflicts=_no_other_norm,
        no_fold="stock fairseq has no Transformer without LayerNorm",
    )
)
