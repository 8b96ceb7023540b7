"""A learning rate and an epsilon for each kind of parameter, with any optimizer and any schedule of fairseq.

Three things stand in the way. Optimizers get parameters without names; schedules set one rate for all groups; a resumed
training overrides all groups with the values of the command line. Here a training marks the matrices of the layers as
fairseq marks groups (``param_group``), a model marks parameters with factors (``optim_overrides``), both of which
fairseq copies to the float32 copies of half precision; parameters of equal factors form a group; and each setter of the
rate of a group multiplies it by the factor. Without factors nothing changes. A model that has lost some is refused.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from fairseq import optim
from fairseq.optim import FairseqOptimizer
from fairseq.trainer import Trainer
from torch import nn

from fairseq_plugins.core.initialisation import MULTIPLIERS, multipliers_of
from fairseq_plugins.core.sub_layers import place_of
from fairseq_plugins.errors import UserError
from fairseq_plugins.wrapping import wrap

MATRIX = "matrix of a layer"
"""``param_group`` of the weights of linear maps in the layers: no embedding, no weights of a few streams."""


def mark_matrices(model: nn.Module) -> None:
    """Mark the matrices of the layers."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and name.endswith("weight") and place_of(name) is not None:
            parameter.param_group = MATRIX  # type: ignore[attr-defined]


def mark_and_build(build: Callable[[Trainer], None], trainer: Trainer) -> None:
    """``Trainer._build_optimizer`` that marks the matrices of the layers; ``composite`` has groups of its own.

    A UserError if the optimizer has no groups for the factors of a model, or the model has lost some of them.
    """
    scaled = sum(bool(multipliers_of(parameter)) for parameter in trainer.model.parameters())
    if scaled < (given := getattr(trainer.model, "scaled_parameters", 0)):
        raise UserError(
            f"the conversion of this model has replaced {given - scaled} of {given} parameters that have a learning "
            "rate of their own, which is lost: choose another precision or --ddp-backend"
        )
    composite = trainer.cfg.optimizer._name == "composite"
    if not composite:
        mark_matrices(trainer.model)
    if not (scaled and composite):
        build(trainer)
        if not scaled or any(MULTIPLIERS in group for group in trainer.optimizer.param_groups):
            return
    raise UserError(
        "this model has a learning rate for each kind of parameter, which composite and optimizers with all weights in "
        "one tensor cannot have: add --fp16-no-flatten-grads, or choose another --optimizer or --ddp-backend"
    )


def build_with_factors(build: Callable[..., FairseqOptimizer], cfg: Any, params: Any, **kwargs: Any) -> Any:
    """``fairseq.optim.build_optimizer`` whose groups have one set of factors each."""
    optimizer = build(cfg, params, **kwargs)
    if not any(map(multipliers_of, optimizer.params)):
        return optimizer
    groups = []
    for group in optimizer.param_groups:
        alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for parameter in group["params"]:
            alike[tuple(multipliers_of(parameter).items())].append(parameter)
        for factors, parameters in alike.items():
            own = {**group, "params": parameters}
            multiply(own, dict(factors), group)
            for name, factor in group.get(MULTIPLIERS, {}).items():
                own[MULTIPLIERS] = {**own.get(MULTIPLIERS, {}), name: own.get(MULTIPLIERS, {}).get(name, 1.0) * factor}
            groups.append(own)
    # The rate that fairseq logs is that of the first group.
    optimizer.optimizer.param_groups = sorted(groups, key=lambda group: MULTIPLIERS in group)
    return optimizer


def multiply(group: dict[str, Any], factors: Mapping[str, float], settings: Mapping[str, Any]) -> None:
    """Set each setting of ``group`` that has a factor, and is among ``settings``, to factor * setting.

    Adafactor's epsilons are a pair, neither of which is Adam's: they stay.
    """
    if factors:
        group[MULTIPLIERS] = dict(factors)
    numbers = {name: value for name, value in settings.items() if isinstance(value, (int, float))}
    group.update({name: numbers[name] * factor for name, factor in factors.items() if name in numbers})


def set_rates(set_lr: Callable[..., None], optimizer: FairseqOptimizer, lr: float) -> None:
    """``FairseqOptimizer.set_lr`` with the factor of each group."""
    set_lr(optimizer, lr)
    for group in optimizer.param_groups:
        multiply(group, group.get(MULTIPLIERS, {}), {"lr": lr})


def load_rates(
    load: Callable[..., None], optimizer: FairseqOptimizer, state: Any, optimizer_overrides: Any = None
) -> None:
    """``FairseqOptimizer.load_state_dict`` that overrides each group with its own values, by the factors of now."""
    factors = [group.get(MULTIPLIERS, {}) for group in optimizer.param_groups]
    load(optimizer, state, optimizer_overrides)
    for group, own in zip(optimizer.param_groups, factors, strict=True):
        group.pop(MULTIPLIERS, None)
        multiply(group, own, optimizer_overrides or {})


wrap(Trainer, "_build_optimizer", mark_and_build)
wrap(optim, "build_optimizer", build_with_factors)
wrap(FairseqOptimizer, "set_lr", set_rates)
wrap(FairseqOptimizer, "load_state_dict", load_rates)
