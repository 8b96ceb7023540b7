"""The vocabulary of the package: stacks, sites, parts of a Transformer, and methods made of them.

A *method* is a frozen record that names one *part* on each of ten axes. Nothing in ``core`` knows a method by name:
parts and methods register themselves here when :mod:`fairseq_plugins.methods` is imported. docs/architecture.md
explains the terms: stream, branch, site, depth, history.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from fairseq_plugins.errors import UserError, flag, unknown_name

Build = TypeVar("Build", bound=Callable[..., Any])


class Stack(str, Enum):
    """One of the two halves of the model."""

    ENCODER = "encoder"
    DECODER = "decoder"


class Site(str, Enum):
    """A sub-layer of a layer; the value is the stock prefix of its modules."""

    SELF = "self_attn"
    CROSS = "encoder_attn"
    FFN = "ffn"


class Axis(str, Enum):
    """The choices that make up a model. Each value is also the name of its command-line flag."""

    NORM_POSITION = "norm_position"
    NORM_TYPE = "norm_type"
    RESIDUAL = "residual"
    ATTENTION = "attention"
    LAYER_AGGREGATION = "layer_aggregation"
    SOLVER = "solver"
    BIAS = "bias"
    REPARAM = "reparam"
    INIT = "init"
    BASE_INIT = "base_init"


@dataclass(frozen=True)
class Option:
    """A setting that belongs to one part: a flag, a key of the YAML, a row of the documentation.

    Attributes:
        name: key of the configuration; ``--name-with-dashes`` on the command line. Starts with the part's name.
        default: value if neither the user nor the method's preset sets one; its type is the option's type.
        help: one sentence for ``--help`` and the documentation.
        choices: legal values of a text option; empty for numbers.
        rate: whether a number must be at least 0 and below 1.
        least: the smallest legal number, if there is one.
    """

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    rate: bool = False
    least: float | None = None


@dataclass(frozen=True)
class NewParameter:
    """A parameter or buffer that a part adds to stock fairseq's, for the documentation and its test.

    Attributes:
        name: name in the state dict below the layer or stack, e.g. ``self_attn_residual.omega``.
        shape: e.g. ``(C)`` or ``(2C, 2C)``; F is the inner width of a feed-forward, H the number of heads.
        initial: initial value; begins with the value of a freshly built model, then says what changes it. Where that is
            random, or a base initialisation may make it random, begins with "drawn"; where it depends on the sizes of
            the model, with its formula.
        buffer: true for a buffer (stored, not trained).
    """

    name: str
    shape: str
    initial: str
    buffer: bool = False


@dataclass(frozen=True)
class Part:
    """One choice on one axis.

    Attributes:
        axis: where it can be chosen.
        name: the value on the command line.
        build: the axis's factory; its signature is documented with the axis in docs/architecture.md.
        summary: one line for the documentation.
        options: settings of this part.
        parameters: its additions to the state dict.
        conflicts: takes the :class:`~fairseq_plugins.core.design.StackDesign` of one stack and the whole configuration,
            returns one message per problem.
        no_fold: why a model with this part cannot be folded into a plain stock Transformer; empty if it can.
        top: for a norm, takes a design and returns the factory of the norm on top of a stack; by default there is none.
        extra_streams: for a residual connection, takes a design and returns the module of the extra streams of a
            stack; by default there is none.
        ends: for a weight form, takes a new stack and changes its embedding and its output projection in place; by
            default nothing.
    """

    axis: Axis
    name: str
    build: Callable[..., Any]
    summary: str
    options: tuple[Option, ...] = ()
    parameters: tuple[NewParameter, ...] = ()
    conflicts: Callable[[Any, Any], list[str]] = lambda design, config: []
    no_fold: str = ""
    top: Callable[[Any], Any] = lambda design: None
    extra_streams: Callable[[Any], Any] = lambda design: None
    ends: Callable[[Any], None] = lambda stack: None


@dataclass(frozen=True)
class Method:
    """A published system: its paper and its choice on every axis, by the names of the parts.

    Attributes:
        name: ``<name>_transformer`` is its architecture.
        title: its name in the papers.
        paper: authors, venue, year and address.
        equation: the sub-layer equation in Markdown with formulas as $`...`$, and its number in the paper; the first
            table of docs/methods.md shows it up to the first semicolon.
        departures: where the released code departs from the text, and what this package does.
        options: settings that differ from their defaults: options of its parts, dropouts, sizes.
        norm_position, norm_type, residual, attention, layer_aggregation, solver, bias, reparam, init, base_init: names
            of parts; ``encoder,decoder`` where they differ.
    """

    name: str
    title: str
    paper: str
    equation: str
    norm_position: str = "post"
    norm_type: str = "layer_norm"
    residual: str = "plain"
    attention: str = "softmax"
    layer_aggregation: str = "last"
    solver: str = "euler"
    bias: str = "vector"
    reparam: str = "plain"
    init: str = "keep"
    base_init: str = "xavier"
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    departures: tuple[str, ...] = ()

    def choice(self, axis: Axis) -> str:
        """Name of the part on ``axis``, as the configuration stores it."""
        return str(getattr(self, axis.value))


GENERAL_OPTIONS: dict[str, Option] = {}
"""Settings of every model with any parts, by name."""
PARTS: dict[Axis, dict[str, Part]] = {axis: {} for axis in Axis}
METHODS: dict[str, Method] = {}


def part(axis: Axis, name: str, **record: Any) -> Callable[[Build], Build]:
    """Make ``name`` a legal value of ``axis``, built by the function that this decorates; a short one is a lambda.

    Args:
        axis: where the part can be chosen.
        name: its value on the command line. A second part of that name is a programmer's mistake.
        record: the other attributes of :class:`Part`.
    """
    assert name not in PARTS[axis], f"{axis.value} '{name}' is registered twice"

    def register(build: Build) -> Build:
        PARTS[axis][name] = Part(axis, name, build, **record)
        return build

    return register


def method(name: str, **record: Any) -> Method:
    """Make a method an architecture; ``record`` holds the attributes of :class:`Method`."""
    assert name not in METHODS, f"method '{name}' is registered twice"
    METHODS[name] = Method(name, **record)
    return METHODS[name]


def find_part(axis: Axis, name: str) -> Part:
    """Return the part called ``name``.

    Raises:
        UserError: there is none; the message lists the legal names and the nearest one.
    """
    if name not in PARTS[axis]:
        raise UserError(unknown_name(f"value of {flag(axis.value)}", name, PARTS[axis]))
    return PARTS[axis][name]


def all_options() -> tuple[Option, ...]:
    """Return every option once: the general ones first, then those of the parts in order of registration."""
    options: dict[str, Option] = dict(GENERAL_OPTIONS)
    for parts in PARTS.values():
        for part in parts.values():
            for option in part.options:
                assert options.setdefault(option.name, option) == option, f"two options are called {option.name}"
    return tuple(options.values())
