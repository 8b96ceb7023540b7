"""Architectures: presets of the registered methods in each family of models, and their registration with fairseq.

A method is an architecture of every family in which its preset makes sense; a preset that a part refuses is not
registered. No method is named here.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from omegaconf import OmegaConf, open_dict

from fairseq_plugins.core.config import plain_namespace, resolve
from fairseq_plugins.core.fields import Family, make_config_class
from fairseq_plugins.core.method import METHODS, Axis, Method, all_options
from fairseq_plugins.errors import UserError

Preset = dict[str, Any]


def stock_sizes(family: Family, arch: str, said: Mapping[str, Any] | None = None) -> Preset:
    """Return the presettable settings, as fairseq's architecture ``arch`` completes those that the user has set."""
    filled = Namespace(**(said or {}))
    ARCH_CONFIG_REGISTRY[arch](filled)
    return {name: getattr(filled, name, family.defaults[name]) for name in family.presettable}


def method_preset(method: Method | None) -> Preset:
    """Return the axes and options of ``method``; without a method, those of a stock Transformer."""
    preset: Preset = {option.name: str(option.default) for option in all_options()}
    chosen = method or Method("", "", "", "", base_init="fairseq")
    preset.update({axis.value: chosen.choice(axis) for axis in Axis})
    preset.update({name: str(value) if name in preset else value for name, value in chosen.options.items()})
    return preset


def fill_unset(config: Any, family: Family, stock_arch: str, preset: Mapping[str, Any]) -> None:
    """Fill unset values of ``config`` (a Namespace or a DictConfig): from ``preset``, then as fairseq completes it.

    Some widths and rates follow others that the user may have said, as the stock architecture has it, so it is asked.
    """
    said = {name: getattr(config, name, None) for name in family.presettable}
    known = {name: preset[name] for name in family.presettable if name in preset}
    known.update({name: value for name, value in said.items() if value is not None})
    filling = {**stock_sizes(family, stock_arch, known), **preset}
    if OmegaConf.is_config(config):
        with open_dict(config):
            _fill(config, filling)
    else:
        _fill(config, filling)


def _fill(config: Any, preset: Mapping[str, Any]) -> None:
    for name, value in preset.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)


def _presets(family: Family, method: Method | None) -> Iterator[tuple[str, str, Preset]]:
    """Yield suffix, fairseq architecture and further presets, for every size and depth."""
    chosen = method_preset(method)
    for size_suffix, size in family.sizes.items():
        for depth_suffix, depth in family.depths.items() if size.depths else [("", {})]:
            yield size_suffix + depth_suffix, size.stock, {**size.changes, **chosen, **depth}


def architecture_presets(family: Family, method: Method | None) -> dict[str, Preset]:
    """Return all presets of every size and depth, by architecture suffix."""
    return {
        suffix: {**stock_sizes(family, stock_arch, _sizes_in(family, preset)), **preset}
        for suffix, stock_arch, preset in _presets(family, method)
    }


def _sizes_in(family: Family, preset: Mapping[str, Any]) -> Preset:
    return {name: preset[name] for name in family.presettable if name in preset}


def refusals(config_class: Any, method: Method) -> list[str]:
    """Return why ``method`` is not supported in a family; empty if it is."""
    family: Family = config_class.family
    unknown = [name for name in method.options if name not in config_class.__dataclass_fields__]
    if unknown:
        return [f"{family.model} has no setting '{name}'" for name in unknown]
    config = Namespace(**architecture_presets(family, method)[""])
    try:
        resolve(plain_namespace(config, config_class), family)
    except UserError as error:
        return list(error.problems)
    return []


def methods_of(config_class: Any) -> list[Method]:
    """Return the methods that are architectures of a family."""
    return [method for method in METHODS.values() if not refusals(config_class, method)]


def _architecture(config_class: Any, stock_arch: str, preset: Preset) -> Callable[[Any], None]:
    """Make an architecture function for fairseq, which fills unset values, then reports every problem at once."""
    family: Family = config_class.family

    def fill(config: Any) -> None:
        fill_unset(config, family, stock_arch, preset)
        resolve(plain_namespace(config, config_class), family)

    return fill


def register_family(model: Any) -> None:
    """Register a model and all architectures of its family with fairseq. Call after the methods are imported."""
    family: Family = model.family
    config_class = model.config_class = make_config_class(family)
    register_model(family.model, dataclass=config_class)(model)
    # fairseq registers an architecture named after the model that does nothing; this one writes the resolved choices
    # into the configuration, so that a checkpoint keeps its meaning if a preset is corrected later.
    named: list[tuple[str, Method | None]] = [(family.model, None)]
    named += [(method.name + family.suffix, method) for method in methods_of(config_class)]
    for prefix, method in named:
        for suffix, stock_arch, preset in _presets(family, method):
            fill = _architecture(config_class, stock_arch, preset)
            if prefix + suffix == family.model:
                ARCH_CONFIG_REGISTRY[family.model] = fill
            else:
                register_model_architecture(family.model, prefix + suffix)(fill)
