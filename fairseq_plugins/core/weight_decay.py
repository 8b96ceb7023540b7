"""Which parameters a training shall not decay: ``--no-weight-decay-on norm,residual,history``.

Chosen by kind. What is of which kind follows from where a parameter stands in the model and from what the parts of
its design declare to add, never from a method's name. The parameters are only marked here, with the attribute by which
fairseq knows parameter groups; :mod:`fairseq_plugins.training.weight_decay` makes the optimizer heed the mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.history import History
from fairseq_plugins.core.method import Axis
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.sub_layers import LATER_NORMS, SUB_LAYER_NORMS
from fairseq_plugins.errors import UserError, unknown_name

FLAG = "--no-weight-decay-on"
KINDS: dict[str, str] = {
    "norm": "LayerNorms and what stands in their place",
    "residual": "what the residual connections of branch and stream train",
    "history": "weights of the layers below",
    "bias": "biases of linear maps and shifts",
    "embedding": "tables of words and of learned positions",
}
"""Every parameter is of at most one kind, of the first that fits."""
HELP = "kinds of parameters that --weight-decay leaves alone, with commas between them: " + "; ".join(
    f"{kind} ({what})" for kind, what in KINDS.items()
)
# Attributes of layers and stacks that hold a norm; what stands there need not be a LayerNorm.
NORM_PLACES = (*SUB_LAYER_NORMS, *LATER_NORMS, "layer_norm", "layernorm_embedding")
# What parts of these axes add is of the kind that has the axis's name.
AXES = (Axis.NORM, Axis.RESIDUAL, Axis.HISTORY, Axis.BIAS)


def read_kinds(said: str | None) -> tuple[str, ...]:
    """The kinds in a value of the flag, in the order of :data:`KINDS`.

    Raises:
        UserError: unknown names, all together, each with the nearest legal one.
    """
    names = [name.strip() for name in said.split(",")] if said else []
    problems = [unknown_name(f"value of {FLAG}", name, KINDS) for name in names if name not in KINDS]
    if problems:
        raise UserError(problems)
    return tuple(kind for kind in KINDS if kind in names)


def parameters_by_kind(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters of each kind, each parameter once; those of no kind are left out."""
    first: dict[nn.Parameter, str] = {}
    for kind, parameter in (*_by_module(model), *_by_declaration(model), *_by_stock(model)):
        first.setdefault(parameter, kind)
    return {kind: [parameter for parameter, its_kind in first.items() if its_kind == kind] for kind in KINDS}


def _by_module(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Norms first: a residual connection or a history may have one of its own."""
    modules = [(name.split(".")[-1], module) for name, module in model.named_modules()]
    norms = [module for name, module in modules if isinstance(module, nn.LayerNorm) or name in NORM_PLACES]
    yield from (("norm", parameter) for module in norms for parameter in module.parameters())
    for kind, owner in (("residual", Residual), ("history", History)):
        owners = [module for _, module in modules if isinstance(module, owner)]
        yield from ((kind, parameter) for module in owners for parameter in module.parameters())


def _by_declaration(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """What the parts of a stack declare to add, wherever in the stack they put it; they call every number I."""
    for stack in model.modules():
        design = getattr(stack, "design", None)
        if isinstance(design, StackDesign):
            for axis in AXES:
                added = design.parts[axis].parameters
                endings = tuple(f".{one.name}" for one in added if not one.buffer)
                yield from ((axis.value, p) for name, p in _declared_names(stack) if name.endswith(endings))


def _declared_names(stack: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in stack.named_parameters():
        yield re.sub(r"\.\d+(?=\.)", ".I", f".{name}"), parameter


def _by_stock(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, nn.Embedding):
                yield "embedding", parameter
            elif name == "bias":
                yield "bias", parameter


def mark(model: nn.Module, config: Any) -> None:
    """Give the parameters of the kinds in ``config.no_weight_decay_on`` the attribute ``param_group``.

    fairseq copies it to the float32 copies of the parameters that train in half precision.

    Raises:
        UserError: the model has no parameter of a kind that was named.
    """
    kinds = read_kinds(config.no_weight_decay_on)
    if not kinds:
        return
    found = parameters_by_kind(model)
    present = ", ".join(kind for kind in KINDS if found[kind])
    problems = [
        f"{FLAG} {kind} has no effect here: this model has none; it has {present}" for kind in kinds if not found[kind]
    ]
    if problems:
        raise UserError(problems)
    for kind in kinds:
        for parameter in found[kind]:
            parameter.param_group = group_name(kinds)  # type: ignore[attr-defined]


PREFIX = "no weight decay on "


def group_name(kinds: tuple[str, ...]) -> str:
    """Value of ``param_group`` of the parameters that are not decayed."""
    return PREFIX + ",".join(kinds)


def is_undecayed(parameter: Any) -> bool:
    """Whether ``parameter`` or its float32 copy is marked."""
    return str(getattr(parameter, "param_group", "")).startswith(PREFIX)
