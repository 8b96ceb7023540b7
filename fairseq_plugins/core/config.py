"""The configuration: one flat dataclass for flags and YAML, presets, and the resolution into designs.

The stock fields are generated from fairseq's own ``TransformerConfig`` (``encoder.layers`` becomes
``encoder_layers``), so that they cannot drift. The flat form is what both ``fairseq-train`` and
``fairseq-hydra-train`` can read; a nested one works with Hydra alone.

Whatever an architecture may preset has the dataclass default ``None``, "not said". That is what makes presets
mean the same by flag and by YAML: an architecture's value fills what the user left unsaid, in both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from argparse import Namespace
from functools import partial
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Type, Union, get_args, get_origin

from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig, QuantNoiseConfig
from omegaconf import II, OmegaConf, open_dict

from fairseq_plugins.core import weight_decay
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import (
    GENERAL_OPTIONS,
    PARTS,
    Axis,
    Choices,
    Method,
    Option,
    Part,
    Shape,
    Stack,
    all_options,
    find_part,
)
from fairseq_plugins.errors import UserError, unknown_name

# What an architecture may set. Everything else keeps fairseq's default unless the user says otherwise.
SIZE_FIELDS = tuple(
    f"{stack.value}_{name}" for stack in Stack for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
) + ("dropout", "attention_dropout", "activation_dropout")

# Stock settings that this package has no answer to; a value other than the default is refused, never ignored.
UNSUPPORTED = (
    "cross_self_attention",
    "base_layers",
    "quant_noise_pq",
    "quant_noise_scalar",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
)
INTERPOLATED = {
    "max_source_positions": II("task.max_source_positions"),
    "max_target_positions": II("task.max_target_positions"),
}
# Widths at the two ends of the decoder; where they are not said, the decoder's own. No interpolation as upstream: the
# decoder's width may itself be unsaid when Hydra resolves interpolations.
END_WIDTHS = ("decoder_input_dim", "decoder_output_dim")
AXIS_HELP = {
    Axis.NORM: "where the LayerNorms stand",
    Axis.RESIDUAL: "how a branch joins the stream",
    Axis.ATTENTION: "which attention sub-layers there are",
    Axis.HISTORY: "what a layer takes as its input",
    Axis.BIAS: "what the linear maps of a layer add",
    Axis.INIT: "what the method does to the initial weights",
    Axis.BASE_INIT: "distribution of the initial weights: the one the papers assume or today's stock one",
}


def _stock_fields() -> List[Tuple[str, Any, Any]]:
    """(name, type, dataclass field) of every setting of stock ``TransformerConfig``, flattened."""
    nested: Dict[str, Type[FairseqDataclass]] = {
        "encoder": EncDecBaseConfig,
        "decoder": DecoderConfig,
        "quant_noise": QuantNoiseConfig,
    }
    flat = []
    for top in dataclasses.fields(TransformerConfig):
        inner = dataclasses.fields(nested[top.name]) if top.name in nested else (top,)
        for one in inner:
            if not one.name.startswith("_"):
                flat.append((f"{top.name}_{one.name}" if top.name in nested else one.name, one.type, one))
    return flat


def _stock_field(name: str, kind: Any, stock: Any) -> Tuple[str, Any, Any]:
    metadata = dict(stock.metadata)
    metadata.setdefault("help", "as in stock fairseq")
    if name in INTERPOLATED:
        # Without a help text fairseq takes the field as one that another group declares.
        return name, int, dataclasses.field(default=INTERPOLATED[name])
    if name in END_WIDTHS:
        metadata["help"] += " (default: the decoder's width)"
        return name, Optional[int], dataclasses.field(default=None, metadata=metadata)
    if name.endswith("layers_to_keep"):
        # Declared as a list upstream, but the stock builder splits it as text.
        return name, Optional[str], dataclasses.field(default=None, metadata=metadata)
    if name in SIZE_FIELDS:
        metadata["help"] += " (default: the architecture's)"
        inner = [t for t in get_args(kind) if t is not type(None)]
        kind = inner[0] if get_origin(kind) is Union else kind
        return name, Optional[kind], dataclasses.field(default=None, metadata=metadata)
    return name, kind, dataclasses.field(default=stock.default, metadata=metadata)


def _axis_field(axis: Axis) -> Tuple[str, Any, Any]:
    help_text = f"{AXIS_HELP[axis]}: {', '.join(PARTS[axis])}; ENCODER,DECODER where they differ"
    return axis.value, Optional[str], dataclasses.field(default=None, metadata={"help": help_text})


def _option_field(option: Option) -> Tuple[str, Any, Any]:
    values = ", ".join(option.choices) or "a number"
    help_text = f"{option.help} (default: {option.default}; values: {values}; ENCODER,DECODER where they differ)"
    return option.name, Optional[str], dataclasses.field(default=None, metadata={"help": help_text})


def make_config_class() -> Type[FairseqDataclass]:
    """The dataclass of the configuration. Call after all parts have been registered."""
    fields = [_stock_field(*one) for one in _stock_fields()]
    fields += [_axis_field(axis) for axis in Axis] + [_option_field(option) for option in all_options()]
    undecayed = dataclasses.field(default=None, metadata={"help": weight_decay.HELP})
    fields.append(("no_weight_decay_on", Optional[str], undecayed))
    return dataclasses.make_dataclass(
        "DeepTransformerConfig", fields, bases=(FairseqDataclass,), namespace={"__module__": __name__}
    )


def stock_sizes(arch: str, said: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """The fields of ``SIZE_FIELDS`` as fairseq's own architecture ``arch`` completes what the user has said."""
    filled = Namespace(**(said or {}))
    ARCH_CONFIG_REGISTRY[arch](filled)
    return {name: getattr(filled, name) for name in SIZE_FIELDS}


def method_preset(method: Optional[Method]) -> Dict[str, Any]:
    """Values of the axes and options that ``method`` stands for; without a method, those of a stock Transformer."""
    preset: Dict[str, Any] = {option.name: str(option.default) for option in all_options()}
    chosen = method or Method("", "", "", "", base_init="fairseq")
    preset.update({axis.value: chosen.choice(axis) for axis in Axis})
    preset.update({name: str(value) if name in preset else value for name, value in chosen.options.items()})
    return preset


def fill_unsaid(config: Any, preset: Mapping[str, Any], stock_arch: str = "transformer") -> None:
    """Set every value of ``preset`` that ``config`` (a Namespace or a DictConfig) leaves unsaid.

    Whether a decoder width that is not said follows the encoder's depends on the stock architecture, so it is asked.
    """
    said = {name: getattr(config, name, None) for name in SIZE_FIELDS}
    stock = stock_sizes(stock_arch, {name: value for name, value in said.items() if value is not None})
    preset = {**preset, **{name: stock[name] for name in ("decoder_embed_dim", "decoder_ffn_embed_dim")}}
    if OmegaConf.is_config(config):
        with open_dict(config):
            _fill(config, preset)
    else:
        _fill(config, preset)


def _fill(config: Any, preset: Mapping[str, Any]) -> None:
    for name, value in preset.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)


def plain_namespace(config: Any, config_class: Type[FairseqDataclass]) -> Namespace:
    """Every field of ``config_class`` as plain data, interpolations resolved, absent ones at their defaults."""
    values = Namespace()
    for field in dataclasses.fields(config_class):
        if field.name.startswith("_"):
            continue
        value = getattr(config, field.name, None)
        if value is None:
            value = field.default
        if OmegaConf.is_config(value):
            value = OmegaConf.to_container(value, resolve=True)
        setattr(values, field.name, value)
    _fill_defaults_of_stock(values)
    return values


def _fill_defaults_of_stock(values: Namespace) -> None:
    for name, interpolation in INTERPOLATED.items():
        if getattr(values, name) == interpolation:
            setattr(values, name, 1024)  # fairseq's DEFAULT_MAX_SOURCE_POSITIONS and DEFAULT_MAX_TARGET_POSITIONS
    for name in END_WIDTHS:
        if getattr(values, name) is None:
            setattr(values, name, values.decoder_embed_dim)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def value_of(config: Namespace, name: str, stack: Stack) -> str:
    """The value of an axis or option for one stack: all of it, or its half of ``ENCODER,DECODER``.

    Raises:
        UserError: more than two values.
    """
    values = [one.strip() for one in str(getattr(config, name)).split(",")]
    if len(values) > 2:
        raise UserError(f"{_flag(name)} takes one value or ENCODER,DECODER, not {len(values)} values")
    return values[-1 if stack is Stack.DECODER else 0]


def choose(config: Namespace, stack: Stack) -> Choices:
    """The parts of one stack.

    Raises:
        UserError: names that are not registered, all together, each with the nearest legal one.
    """
    readers = {axis.value: partial(_chosen_part, config, axis, stack) for axis in Axis}
    return Choices(**_collect(readers))


def _chosen_part(config: Namespace, axis: Axis, stack: Stack) -> Part:
    return find_part(axis, value_of(config, axis.value, stack))


def option_values(config: Namespace, stack: Stack) -> SimpleNamespace:
    """Every option's value for one stack, as its own type.

    Raises:
        UserError: values that are not legal, all together.
    """
    readers = {option.name: partial(_option_value, config, option, stack) for option in all_options()}
    return SimpleNamespace(**_collect(readers))


def _option_value(config: Namespace, option: Option, stack: Stack) -> Any:
    text = value_of(config, option.name, stack)
    if option.choices:
        if text not in option.choices:
            raise UserError(unknown_name(f"value of {_flag(option.name)}", text, option.choices))
        return text
    try:
        value = type(option.default)(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{_flag(option.name)} takes a number, not '{text}'")
    if option.rate and not 0 <= value < 1:
        raise UserError(f"{_flag(option.name)} must be at least 0 and below 1, not {text}")
    return value


@contextlib.contextmanager
def _noting(problems: List[str]) -> Iterator[None]:
    """Add the problems of a UserError to ``problems`` and go on."""
    try:
        yield
    except UserError as error:
        problems += error.problems


def _collect(thunks: Mapping[str, Callable[[], Any]]) -> Dict[str, Any]:
    """Run every thunk; if any raises a UserError, raise one with the problems of all."""
    results: Dict[str, Any] = {}
    problems: List[str] = []
    for name, thunk in thunks.items():
        with _noting(problems):
            results[name] = thunk()
    if problems:
        raise UserError(problems)
    return results


def _size_problems(config: Namespace) -> List[str]:
    problems = []
    for stack in Stack:
        sizes = {name: getattr(config, f"{stack.value}_{name}") for name in ("layers", "embed_dim", "ffn_embed_dim")}
        problems += [
            f"{_flag(stack.value + '_' + name)} must be at least 1, not {value}"
            for name, value in sizes.items()
            if value < 1
        ]
        heads = getattr(config, f"{stack.value}_attention_heads")
        if heads < 1 or sizes["embed_dim"] % heads:
            problems.append(
                f"--{stack.value}-embed-dim {sizes['embed_dim']} is not a multiple of "
                f"--{stack.value}-attention-heads {heads}"
            )
    return problems


def _rate_problems(config: Namespace) -> List[str]:
    rates = ["dropout", "attention_dropout", "activation_dropout", "relu_dropout", "adaptive_softmax_dropout"]
    rates += ["encoder_layerdrop", "decoder_layerdrop"]
    return [
        f"{_flag(name)} must be at least 0 and below 1, not {getattr(config, name)}"
        for name in rates
        if not 0 <= getattr(config, name) < 1
    ]


def _idle_problems(chosen: Mapping[Stack, Choices], options: Mapping[Stack, SimpleNamespace]) -> List[str]:
    """Options that somebody set and no part of either stack reads."""
    read = {option for choices in chosen.values() for part in choices.all() for option in part.options}
    problems = []
    for option in all_options():
        if option.name in GENERAL_OPTIONS:
            continue
        said = any(getattr(values, option.name) != option.default for values in options.values())
        if said and option not in read:
            owners = [
                f"{_flag(axis.value)} {name}"
                for axis, parts in PARTS.items()
                for name, part in parts.items()
                if option in part.options
            ]
            problems.append(f"{_flag(option.name)} has no effect here: it belongs to {' and '.join(owners)}")
    return problems


def _sharing_problems(config: Namespace) -> List[str]:
    if not config.share_all_embeddings:
        return []
    problems = []
    if config.encoder_embed_dim != config.decoder_embed_dim:
        problems.append(
            f"--share-all-embeddings needs one width: --encoder-embed-dim {config.encoder_embed_dim} "
            f"must equal --decoder-embed-dim {config.decoder_embed_dim}"
        )
    if config.decoder_embed_path and config.decoder_embed_path != config.encoder_embed_path:
        problems.append("--share-all-embeddings needs one table: --decoder-embed-path must equal --encoder-embed-path")
    return problems


def _stock_problems(config: Namespace, designs: Mapping[Stack, StackDesign]) -> List[str]:
    problems = [f"{_flag(name)} is not supported" for name in UNSUPPORTED if getattr(config, name)]
    for stack, design in designs.items():
        choices = design.choices
        if getattr(config, f"{stack.value}_normalize_before") and not design.norm.stock_top:
            problems.append(f"--{stack.value}-normalize-before contradicts --norm {config.norm}: say --norm pre")
        if getattr(config, f"{stack.value}_layerdrop") > 0 and choices.history.name != "last":
            problems.append(
                f"--history {choices.history.name} needs every layer's output: "
                f"it cannot go with --{stack.value}-layerdrop"
            )
    return problems


def resolve(config: Namespace) -> Dict[Stack, StackDesign]:
    """Turn a complete configuration into the designs of both stacks.

    Raises:
        UserError: every problem of the configuration, all reported together, before a module is built.
    """
    problems: List[str] = []
    chosen: Dict[Stack, Choices] = {}
    options: Dict[Stack, SimpleNamespace] = {}
    for stack in Stack:
        with _noting(problems):
            chosen[stack] = choose(config, stack)
        with _noting(problems):
            options[stack] = option_values(config, stack)
    problems += _size_problems(config) + _rate_problems(config) + _sharing_problems(config)
    with _noting(problems):
        weight_decay.read_kinds(config.no_weight_decay_on)
    if len(chosen) == len(options) == len(Stack):
        problems += _idle_problems(chosen, options)
    designs = {
        stack: StackDesign(choices, shape_of(config, choices, options[stack], stack))
        for stack, choices in chosen.items()
        if stack in options
    }
    problems += _stock_problems(config, designs)
    for design in designs.values():
        for part in design.choices.all():
            problems += part.conflicts(design.choices, design.shape, config)
    if problems:
        raise UserError(list(dict.fromkeys(problems)))
    return designs


def shape_of(config: Namespace, choices: Choices, options: SimpleNamespace, stack: Stack) -> Shape:
    """What the parts of one stack are built from."""
    return Shape(
        stack=stack,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=getattr(config, f"{stack.value}_embed_dim"),
        ffn_width=getattr(config, f"{stack.value}_ffn_embed_dim"),
        activation_dropout=config.activation_dropout,
        heads=getattr(config, f"{stack.value}_attention_heads"),
        norm=choices.norm.name,
        options=options,
    )


def nested_config(config: Namespace, designs: Mapping[Stack, StackDesign]) -> TransformerConfig:
    """What stock fairseq's builders read: its nested ``TransformerConfig`` that also carries the designs."""
    values = Namespace(**vars(config))
    for stack, design in designs.items():
        setattr(values, f"{stack.value}_normalize_before", design.norm.stock_top)
    nested = TransformerConfig.from_namespace(values)
    nested.designs = dict(designs)
    return nested
