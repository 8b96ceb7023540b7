"""Families of models, and the flat dataclass of each: its flags and its YAML keys.

Stock fields are generated from fairseq's own dataclass or parser, so that they cannot drift; a nested dataclass
(``encoder.layers``) becomes a flat one (``encoder_layers``), which ``fairseq-train`` and ``fairseq-hydra-train`` read.
Every setting that an architecture may preset has the default ``None``, "unset": in both, the architecture fills it.
"""

import argparse
import dataclasses
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Optional, Union, get_args, get_origin

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_plugins.core.method import PARTS, Axis, Stack, all_options

Field = tuple[str, Any, Any]
"""Name, type and :class:`dataclasses.Field` of a setting."""

# Widths at the two ends of the decoder; if unset, the decoder's own. No interpolation as upstream: the decoder's width
# may itself be unset when Hydra resolves interpolations.
END_WIDTHS = ("decoder_input_dim", "decoder_output_dim")
AXIS_HELP = {
    Axis.NORM_POSITION: "where the LayerNorms are",
    Axis.NORM_TYPE: "what stands where a LayerNorm would",
    Axis.RESIDUAL: "how a branch joins the stream",
    Axis.ATTENTION: "which attention sub-layers exist",
    Axis.LAYER_AGGREGATION: "what a layer takes as its input",
    Axis.SOLVER: "how often a layer is evaluated, and what becomes of its results",
    Axis.BIAS: "what the linear maps of a layer add to their product",
    Axis.REPARAM: "what the linear maps of a layer multiply by",
    Axis.INIT: "what the method does to the initial weights",
    Axis.BASE_INIT: "distribution of the initial weights: the one that the papers assume, or fairseq's current one",
}

OLD_NAMES = {
    "norm": Axis.NORM_POSITION.value,
    "norm_module": Axis.NORM_TYPE.value,
    "history": Axis.LAYER_AGGREGATION.value,
    "weight_form": Axis.REPARAM.value,
}
"""Earlier names of settings; flags, YAML files and checkpoints may still have them, ``--help`` does not list them."""

EMBEDDING_DROPOUT = "rate of the dropout of the embedding, below the first layer (default: --dropout)"
"""fairseq has one rate for embeddings and branches. The code of DS-Init's authors has two (zero: ``dropout`` and
``residual_dropout``); that of ReZero's has no dropout of embeddings."""


@dataclass(frozen=True)
class Size:
    """A size of architectures.

    Attributes:
        stock: fairseq's architecture of that size; it also derives settings from those that the user has set.
        changes: differences from it, for sizes that fairseq has no architecture for.
    """

    stock: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes:
        model: name of the model in fairseq, and of the architecture without a method.
        suffix: the part of an architecture's name that follows the method.
        class_name: name of the dataclass.
        stacks: the stacks of the model.
        stock: the stock settings, see :func:`flat_fields` and :func:`parser_fields`.
        presettable: settings that an architecture may preset; all others keep fairseq's default unless the user sets
            them.
        fallbacks: values, if unset, of the settings that another group declares (mostly the task).
        fixed: values for every model of the family of settings that only other families have.
        complete: sets, in a configuration that is plain data, the values that follow from other settings.
        problems: problems of such a configuration in settings that only this family has.
        sizes: suffix of an architecture to its size.
        depths: settings of each depth, by a further suffix.
    """

    model: str
    suffix: str
    class_name: str
    stacks: tuple[Stack, ...]
    stock: tuple[Field, ...]
    presettable: tuple[str, ...]
    sizes: Mapping[str, Size]
    fallbacks: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    complete: Callable[[Namespace], None] = lambda values: None
    problems: Callable[[Namespace], list[str]] = lambda values: []
    depths: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})

    @cached_property
    def shapes(self) -> dict[str, tuple[Size, Mapping[str, Any]]]:
        """Size and settings of the depth of every architecture of a method, by its suffix."""
        return {
            of_size + of_depth: (size, depth)
            for of_size, size in self.sizes.items()
            for of_depth, depth in self.depths.items()
        }


def flat_fields(config: type[FairseqDataclass], nested: Mapping[str, type[Any]] | None = None) -> tuple[Field, ...]:
    """Return every setting of a fairseq dataclass; those of ``nested`` dataclasses have the group's name in front."""
    flat: list[Field] = []
    for top in dataclasses.fields(config):
        group = (nested or {}).get(top.name)
        prefix = f"{top.name}_" if group else ""
        for setting in dataclasses.fields(group) if group else (top,):
            if not setting.name.startswith("_"):
                flat.append((prefix + setting.name, setting.type, setting))
    return tuple(flat)


def parser_fields(add_args: Callable[[argparse.ArgumentParser], None]) -> tuple[Field, ...]:
    """Return every flag of a fairseq model that declares its settings to a parser."""
    parser = argparse.ArgumentParser(add_help=False)
    add_args(parser)
    fields: list[Field] = []
    for action in parser._actions:
        kind: Any = bool if action.nargs == 0 else action.type or str
        if action.choices is not None:
            kind = ChoiceEnum(list(action.choices))
        metadata = {"help": action.help}
        if len(action.option_strings) > 1:
            metadata["argparse_alias"] = action.option_strings[1]
        default = bool(action.default) if kind is bool else action.default
        kind = Optional[kind] if default is None else kind
        fields.append((action.dest, kind, field(default=default, metadata=metadata)))
    return tuple(fields)


def _stock_field(family: Family, name: str, kind: Any, stock: Any) -> Field:
    metadata = dict(stock.metadata)
    metadata.setdefault("help", "as in stock fairseq")
    if name in family.fallbacks:
        # fairseq treats a field without help text as one that another group declares.
        return name, kind, field(default=stock.default)
    if name in END_WIDTHS:
        metadata["help"] += " (default: the decoder's width)"
        return name, Optional[int], field(default=None, metadata=metadata)
    if name.endswith("layers_to_keep"):
        # Upstream declares a list, but its builder splits the value as text.
        return name, Optional[str], field(default=None, metadata=metadata)
    if name in family.presettable:
        metadata["help"] += " (default: the architecture's)"
        inner = [t for t in get_args(kind) if t is not type(None)]
        kind = inner[0] if get_origin(kind) is Union else kind
        return name, Optional[kind], field(default=None, metadata=metadata)
    return name, kind, field(default=stock.default, metadata=metadata)


def make_config_class(family: Family) -> type[FairseqDataclass]:
    """Make the dataclass of a family's configuration, which keeps the family. Call once all parts are registered."""
    differ = "; ENCODER,DECODER if they differ" if len(family.stacks) > 1 else ""
    helps = {axis.value: f"{AXIS_HELP[axis]}: {', '.join(PARTS[axis])}{differ}" for axis in Axis}
    for option in all_options():
        values = ", ".join(option.choices) or "a number"
        helps[option.name] = f"{option.help} (default: {option.default}; values: {values}{differ})"
    fields = [_stock_field(family, *stock) for stock in family.stock]
    fields += [(name, Optional[str], field(default=None, metadata={"help": text})) for name, text in helps.items()]
    fields += [(name, Optional[str], field(default=None, metadata={"help": argparse.SUPPRESS})) for name in OLD_NAMES]
    fields.append(("embedding_dropout", Optional[float], field(default=None, metadata={"help": EMBEDDING_DROPOUT})))
    return dataclasses.make_dataclass(
        family.class_name, fields, bases=(FairseqDataclass,), namespace={"__module__": __name__, "family": family}
    )
