"""Parameters that are excluded from weight decay: ``--no-weight-decay-on norm,residual,history``.

Parameters are excluded by kind. The kind comes from the module that owns a parameter or from the parameters that the
parts of its design declare, never from a method's name. They are only marked here, with the attribute by which fairseq
forms parameter groups; :mod:`fairseq_plugins.training.weight_decay` makes the optimizer respect it.
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
    "norm": "LayerNorms and what replaces them",
    "residual": "trained parameters of the residual connections",
    "history": "weights given to the layers below",
    "bias": "biases of linear maps and shifts",
    "weight_form": "trained factors of the matrices of linear maps",
    "embedding": "embedding tables of words and of learned positions",
}
"""Every parameter has at most one kind, the first that fits."""
HELP = "kinds of parameters that are excluded from --weight-decay, separated by commas: " + "; ".join(
    f"{kind} ({what})" for kind, what in KINDS.items()
)
# Attributes of layers, stacks and linear maps that hold a norm; it need not be a LayerNorm.
NORM_PLACES = (*SUB_LAYER_NORMS, *LATER_NORMS, "norm", "layer_norm", "layernorm_embedding")
# Parameters that the parts of these axes add have the kind of the axis's name.
AXES = (Axis.NORM, Axis.RESIDUAL, Axis.HISTORY, Axis.BIAS, Axis.WEIGHT_FORM)


def read_kinds(said: str | None) -> tuple[str, ...]:
    """Return the kinds in a value of the flag, in the order of :data:`KINDS`.

    Raises:
        UserError: unknown names, all together, each with the nearest legal one.
    """
    names = [name.strip() for name in said.split(",")] if said else []
    problems = [unknown_name(f"value of {FLAG}", name, KINDS) for name in names if name not in KINDS]
    if problems:
        raise UserError(problems)
    return tuple(kind for kind in KINDS if kind in names)


def parameters_by_kind(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the parameters of each kind, each parameter once; those of no kind are left out."""
    first: dict[nn.Parameter, str] = {}
    for kind, parameter in (*_by_module(model), *_by_declaration(model), *_by_stock(model)):
        first.setdefault(parameter, kind)
    return {kind: [parameter for parameter, its_kind in first.items() if its_kind == kind] for kind in KINDS}


def _by_module(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Norms come first: a residual connection or a history may have one."""
    modules = [(name.split(".")[-1], module) for name, module in model.named_modules()]
    norms = [module for name, module in modules if isinstance(module, nn.LayerNorm) or name in NORM_PLACES]
    yield from (("norm", parameter) for module in norms for parameter in module.parameters())
    for kind, owner in (("residual", Residual), ("history", History)):
        owners = [module for _, module in modules if isinstance(module, owner)]
        yield from ((kind, parameter) for module in owners for parameter in module.parameters())


def _by_declaration(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters that the parts of a stack declare, anywhere in the stack; declarations write I for numbers."""
    for stack in model.modules():
        design = getattr(stack, "design", None)
        if isinstance(design, StackDesign):
            for axis in AXES:
                added = design.parts[axis].parameters
                endings = tuple(f".{parameter.name}" for parameter in added if not parameter.buffer)
                for name, parameter in stack.named_parameters():
                    if re.sub(r"\.\d+(?=\.)", ".I", f".{name}").endswith(endings):
                        yield axis.value, parameter


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
        UserError: the model has no parameter of a named kind.
    """
    kinds = read_kinds(config.no_weight_decay_on)
    if not kinds:
        return
    parameters = parameters_by_kind(model)
    present = ", ".join(kind for kind in KINDS if parameters[kind])
    problems = [
        f"{FLAG} {kind} has no effect here: this model has no such parameters; it has {present}"
        for kind in kinds
        if not parameters[kind]
    ]
    if problems:
        raise UserError(problems)
    for kind in kinds:
        for parameter in parameters[kind]:
            parameter.param_group = group_name(kinds)  # type: ignore[attr-defined]


PREFIX = "no weight decay on "


def group_name(kinds: tuple[str, ...]) -> str:
    """Return the ``param_group`` of the parameters that are not decayed."""
    return PREFIX + ",".join(kinds)


def is_undecayed(parameter: Any) -> bool:
    """Return whether ``parameter`` or its float32 copy is marked."""
    return str(getattr(parameter, "param_group", "")).startswith(PREFIX)
