"""Architectures: presets of the registered methods in each family of models, and their registration with fairseq.

Every method is an architecture of every family, in every size and depth; a nonsensical one is rejected with the
reason. No method is named here.
"""

from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from omegaconf import OmegaConf, open_dict

from fairseq_plugins.core.config import plain_namespace, resolve
from fairseq_plugins.core.fields import OLD_NAMES, Family, make_config_class
from fairseq_plugins.core.method import METHODS, Axis, Method, all_options
from fairseq_plugins.errors import UserError, flag

Preset = dict[str, Any]


def stock_sizes(family: Family, arch: str, user_values: Mapping[str, Any] | None = None) -> Preset:
    """Return the presettable settings of fairseq's architecture ``arch``.

    Args:
        family: the kind of model.
        arch: fairseq's name of the architecture.
        user_values: settings that the user has given; fairseq derives some of the others from them.
    """
    filled = Namespace(**(user_values or {}))
    ARCH_CONFIG_REGISTRY[arch](filled)
    values = {name: getattr(filled, name, stock.default) for name, _, stock in family.stock}
    return {name: values[name] for name in family.presettable}


def method_preset(method: Method | None) -> Preset:
    """Return the axes and options of ``method``; without a method, those of a stock Transformer."""
    preset: Preset = {option.name: str(option.default) for option in all_options()}
    chosen = method or Method("", "", "", "", base_init="fairseq")
    preset.update({axis.value: chosen.choice(axis) for axis in Axis})
    preset.update({name: str(value) if name in preset else value for name, value in chosen.options.items()})
    return preset


def rename(config: Any) -> None:
    """Move values that were given by earlier names to the settings of today, in place.

    Raises:
        UserError: a setting has two values.
    """
    for old, new in OLD_NAMES.items():
        value = getattr(config, old, None)
        if value is None:
            continue
        if getattr(config, new, None) not in (None, value):
            raise UserError(f"{flag(old)} {value} is the old name of {flag(new)}, which is {getattr(config, new)}")
        with open_dict(config) if OmegaConf.is_config(config) else nullcontext():
            setattr(config, new, value)
            setattr(config, old, None)


def fill_unset(config: Any, family: Family, stock_arch: str, preset: Mapping[str, Any]) -> None:
    """Fill unset values of ``config``, a Namespace or DictConfig: from ``preset``, then as fairseq's architecture does.

    Some stock defaults depend on values that the user has set, such as the decoder's width on the encoder's.

    Raises:
        UserError: a setting has two values, one by an earlier name.
    """
    rename(config)
    user_values = {name: getattr(config, name, None) for name in family.presettable}
    known = {name: preset[name] for name in family.presettable if name in preset}
    known.update({name: value for name, value in user_values.items() if value is not None})
    filling = {**stock_sizes(family, stock_arch, known), **preset}
    with open_dict(config) if OmegaConf.is_config(config) else nullcontext():
        for name, value in filling.items():
            if getattr(config, name, None) is None:
                setattr(config, name, value)


def preset_of(family: Family, method: Method | None, suffix: str) -> tuple[str, Preset]:
    """Return fairseq's architecture for a size and a depth, and the values that this package presets beyond it."""
    size, depth = family.shapes[suffix]
    return size.stock, {**size.changes, **method_preset(method), **depth}


def fill_architecture(config_class: Any, method: Method | None, suffix: str, config: Any) -> None:
    """Fill unset values of ``config``, as an architecture does.

    Args:
        config_class: configuration class of the model.
        method: the method that the architecture is named after; None for a model without one.
        suffix: the part of the architecture's name that follows the method.
        config: a Namespace or DictConfig, which is changed.

    Raises:
        UserError: every problem of the configuration, and a method that this family cannot have.
    """
    family: Family = config_class.family
    unknown = [name for name in method.options if name not in config_class.__dataclass_fields__] if method else []
    if unknown:
        raise UserError([f"{family.model} has no setting '{name}'" for name in unknown])
    fill_unset(config, family, *preset_of(family, method, suffix))
    resolve(plain_namespace(config, config_class), family)


def refusals(config_class: Any, method: Method) -> list[str]:
    """Return why a family cannot have ``method``; empty if it can."""
    try:
        fill_architecture(config_class, method, "", Namespace())
    except UserError as error:
        return list(error.problems)
    return []


def register_family(model: Any) -> None:
    """Register a model and the architectures of its family with fairseq. Call after the methods are imported.

    Every method is one. Whether it makes sense in the family is found out when it is asked for: that takes a thousand
    times as long as to register its name.
    """
    family: Family = model.family
    config_class = model.config_class = make_config_class(family)
    register_model(family.model, dataclass=config_class)(model)
    named: list[tuple[str, Method | None]] = [(family.model, None)]
    named += [(method.name + family.suffix, method) for method in METHODS.values()]
    for prefix, method in named:
        for suffix in family.shapes:
            fill = partial(fill_architecture, config_class, method, suffix)
            if prefix + suffix == family.model:
                # fairseq registers an architecture named after the model that does nothing; this one writes the
                # resolved choices into the configuration, so that a checkpoint keeps its meaning if a preset is
                # corrected later.
                ARCH_CONFIG_REGISTRY[family.model] = fill
            else:
                register_model_architecture(family.model, prefix + suffix)(fill)
