"""Configuration to the designs of the stacks: values, checks, and the nested form for fairseq's builders.

A configuration is read as plain data from any source; all problems in it are reported together, before a module is
built. Its flat dataclass is made in :mod:`fairseq_plugins.core.fields`.
"""

import contextlib
import math
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig, QuantNoiseConfig
from omegaconf import OmegaConf

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.fields import END_WIDTHS, Family, flat_fields
from fairseq_plugins.core.method import GENERAL_OPTIONS, PARTS, Axis, Option, Part, Stack, all_options, find_part
from fairseq_plugins.core.norm import stock_top_norm, top_norm
from fairseq_plugins.errors import UserError, flag, unknown_name

# Settings that an architecture of every family may set; a family may add to them.
SIZES = tuple(
    f"{stack.value}_{name}" for stack in Stack for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
)
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
SIZE_FIELDS = SIZES + DROPOUTS

# fairseq settings that are not supported; each value but the default is an error, never ignored.
UNSUPPORTED = (
    *("cross_self_attention", "character_embeddings", "base_layers", "quant_noise_pq", "quant_noise_scalar"),
    *("encoder_xformers_att_config", "decoder_xformers_att_config", "merge_src_tgt_embed"),
    *("scale_fc", "scale_attn", "scale_heads", "scale_resids"),  # stock accepts these, and builds nothing of them
)
NEEDED = {
    **dict.fromkeys(("adaptive_softmax_factor", "adaptive_softmax_dropout"), "adaptive_softmax_cutoff"),
    **dict.fromkeys(("adaptive_input_factor", "adaptive_input_cutoff"), "adaptive_input"),
    "tie_adaptive_proj": "tie_adaptive_weights",
}
"""fairseq settings that do nothing without another one."""
STOCK = flat_fields(
    TransformerConfig, {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}
)
"""All settings that fairseq's layers and stacks read; a family need not have them all."""


def plain_namespace(config: Any, config_class: Any) -> Namespace:
    """Return every setting that a part or a fairseq module may read, as plain data.

    Interpolations are resolved; unset values, and settings that only other families have, are at their defaults.
    """
    family: Family = config_class.family
    values = Namespace(**{name: None if name in END_WIDTHS else stock.default for name, _, stock in STOCK})
    for field in fields(config_class):
        if field.name.startswith("_"):
            continue
        value = getattr(config, field.name, None)
        if value is None:
            value = field.default
        if OmegaConf.is_config(value):
            value = OmegaConf.to_container(value, resolve=True)
        unresolved = isinstance(value, str) and value.startswith("${")
        setattr(values, field.name, family.fallbacks[field.name] if unresolved else value)
    vars(values).update(family.fixed)
    family.complete(values)
    for name in END_WIDTHS:
        if getattr(values, name) is None:
            setattr(values, name, values.decoder_embed_dim)
    return values


def value_of(config: Namespace, name: str, stack: Stack) -> str:
    """Return the value of an axis or option for one stack: all of it, or its half of ``ENCODER,DECODER``.

    Args:
        config: plain values by name.
        name: the axis or option.
        stack: encoder or decoder.

    Raises:
        UserError: more than two values.
    """
    values = [value.strip() for value in str(getattr(config, name)).split(",")]
    if len(values) > 2:
        raise UserError(f"{flag(name)} takes one value or ENCODER,DECODER, not {len(values)} values")
    return values[-1 if stack is Stack.DECODER else 0]


def _option_value(config: Namespace, option: Option, stack: Stack) -> Any:
    text = value_of(config, option.name, stack)
    if option.choices:
        if text not in option.choices:
            raise UserError(unknown_name(f"value of {flag(option.name)}", text, option.choices))
        return text
    try:
        value = type(option.default)(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{flag(option.name)} takes a number, not '{text}'")
    if option.rate and not 0 <= value < 1:
        raise UserError(f"{flag(option.name)} must be at least 0 and below 1, not {text}")
    if option.least is not None and value < option.least:
        raise UserError(f"{flag(option.name)} must be at least {option.least:g}, not {text}")
    return value


@contextlib.contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Add the problems of a UserError to ``problems`` and continue."""
    try:
        yield
    except UserError as error:
        problems += error.problems


def _number_problems(config: Namespace, stacks: Sequence[Stack]) -> list[str]:
    problems = []
    for of in (stack.value for stack in stacks):
        sizes = {f"{of}_{name}": getattr(config, f"{of}_{name}") for name in ("layers", "embed_dim", "ffn_embed_dim")}
        problems += [f"{flag(name)} must be at least 1, not {value}" for name, value in sizes.items() if value < 1]
        width, heads = sizes[f"{of}_embed_dim"], getattr(config, f"{of}_attention_heads")
        if heads < 1 or width % heads:
            problems.append(f"--{of}-embed-dim {width} is not a multiple of --{of}-attention-heads {heads}")
    rates = ["dropout", "attention_dropout", "activation_dropout", "relu_dropout", "adaptive_softmax_dropout"]
    rates += ["embedding_dropout", "encoder_layerdrop", "decoder_layerdrop"]
    values = {name: getattr(config, name) for name in rates}
    return problems + [
        f"{flag(name)} must be at least 0 and below 1, not {value}"
        for name, value in values.items()
        if not 0 <= (value or 0) < 1
    ]


def _idle_problems(designs: Collection[StackDesign]) -> list[str]:
    """Options that were set but that no part of either stack reads."""
    read = {option for design in designs for part in design.parts.values() for option in part.options}
    problems = []
    for option in all_options():
        if option.name in GENERAL_OPTIONS:
            continue
        is_set = any(getattr(design.options, option.name) != option.default for design in designs)
        if is_set and option not in read:
            owners = [part for parts in PARTS.values() for part in parts.values() if option in part.options]
            names = " and ".join(f"{flag(part.axis.value)} {part.name}" for part in owners)
            problems.append(f"{flag(option.name)} has no effect here: it belongs to {names}")
    return problems


def _stock_problems(config: Namespace, designs: Mapping[Stack, StackDesign]) -> list[str]:
    problems = [f"{flag(name)} is not supported" for name in UNSUPPORTED if getattr(config, name, None)]
    for stack, design in designs.items():
        history = design.choice(Axis.LAYER_AGGREGATION)
        if getattr(config, f"{stack.value}_normalize_before") and not has_stock_top(design):
            problems.append(
                f"--{stack.value}-normalize-before contradicts --norm-position {config.norm_position}: "
                "use --norm-position pre"
            )
        for name in ("layerdrop", "layers_to_keep"):
            if getattr(config, f"{stack.value}_{name}") and history != "last":
                problems.append(
                    f"--layer-aggregation {history} needs every layer's output: it cannot be combined with "
                    f"{flag(f'{stack.value}_{name}')}"
                )
    return problems


def resolve(config: Namespace, family: Family) -> dict[Stack, StackDesign]:
    """Turn a complete configuration into the designs of a family's stacks.

    Raises:
        UserError: every problem of the configuration, all reported together, before a module is built.
    """
    stacks, problems = family.stacks, family.problems(config)
    designs: dict[Stack, StackDesign] = {}
    for stack in stacks:
        with _noting(problems):
            designs[stack] = design_of(config, stack, designs.get(Stack.ENCODER))
    problems += _number_problems(config, stacks)
    if len(stacks) == 1:
        values = {name: getattr(config, name) for name in (*Axis, *(option.name for option in all_options()))}
        problems += [
            f"{flag(name)} takes one value here, not {value}: the model has only a {stacks[0].value}"
            for name, value in values.items()
            if len({one.strip() for one in str(value).split(",")}) > 1
        ]
    if len(designs) == len(stacks):
        problems += _idle_problems(designs.values())
    problems += _stock_problems(config, designs)
    usual = {name: stock.default for name, _, stock in (*STOCK, *family.stock)}
    problems += [
        f"{flag(name)} has no effect without {flag(needed)}"
        for name, needed in NEEDED.items()
        if not getattr(config, needed, None) and getattr(config, name, None) not in (None, usual.get(name))
    ]
    for design in designs.values():
        for part in design.parts.values():
            problems += part.conflicts(design, config)
    if problems:
        raise UserError(list(dict.fromkeys(problems)))
    return designs


def design_of(config: Namespace, stack: Stack, below: StackDesign | None = None) -> StackDesign:
    """Return the design of one stack.

    Args:
        config: plain values by name.
        stack: encoder or decoder.
        below: the encoder's design, for a decoder above one.

    Raises:
        UserError: names of parts and values of options that are not legal, all together, each with the nearest one.
    """
    parts: dict[Axis, Part] = {}
    options = SimpleNamespace()
    problems: list[str] = []
    for axis in Axis:
        with _noting(problems):
            parts[axis] = find_part(axis, value_of(config, axis.value, stack))
    for option in all_options():
        with _noting(problems):
            setattr(options, option.name, _option_value(config, option, stack))
    if problems:
        raise UserError(problems)
    return StackDesign(
        stack=stack,
        parts=parts,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=getattr(config, f"{stack.value}_embed_dim"),
        ffn_width=getattr(config, f"{stack.value}_ffn_embed_dim"),
        heads=getattr(config, f"{stack.value}_attention_heads"),
        activation_dropout=config.activation_dropout or config.relu_dropout,
        embedding_dropout=config.dropout if config.embedding_dropout is None else config.embedding_dropout,
        options=options,
        below=below,
    )


def has_stock_top(design: StackDesign) -> bool:
    """Return whether fairseq's constructor builds its own LayerNorm on top of the stack."""
    return top_norm(design) is stock_top_norm


def nested_config(config: Namespace, designs: Mapping[Stack, StackDesign]) -> TransformerConfig:
    """Return fairseq's nested ``TransformerConfig`` for its builders, which also carries the designs."""
    values = Namespace(**vars(config))
    for stack, design in designs.items():
        setattr(values, f"{stack.value}_normalize_before", has_stock_top(design))
    nested = TransformerConfig.from_namespace(values)
    nested.designs = dict(designs)
    return nested
