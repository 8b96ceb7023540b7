"""Write the generated documentation: ``docs/methods.md`` and the marked blocks of other pages.

``python docs/generate.py`` writes them; ``python docs/generate.py --check`` only says which are out of date (exit
code 1). A block is between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from torch import Tensor, nn

import fairseq_plugins  # noqa: F401  (patches fairseq and registers the methods)
from fairseq_plugins import patches
from fairseq_plugins.checkpoints.fold import obstacles
from fairseq_plugins.core.architectures import method_preset, preset_of, stock_sizes
from fairseq_plugins.core.architectures import refusals as refusals_in
from fairseq_plugins.core.config import UNSUPPORTED, design_of, option_values
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.fields import AXIS_HELP, Family
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.method import METHODS, PARTS, Axis, Method, NewParameter, Option, Part, Stack, find_part
from fairseq_plugins.core.model import DEPTHS, SIZES, TRANSLATION, DeepTransformerModel
from fairseq_plugins.core.norm import AffineNorm, ScaledLayerNorm
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.speech_to_text import DeepS2TTransformerModel
from fairseq_plugins.errors import flag
from fairseq_plugins.tables import markdown_table
from fairseq_plugins.tools.pipeline.published import ROWS, PublishedRow, rows_by_table

sys.path.append(str(Path(__file__).resolve().parent))
import depth_tables

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 8
"""Width of the tiny models that are built to look at their state dict."""

INTRODUCTION = """\
# Methods

This page is written by `python docs/generate.py` from the registry in `fairseq_plugins/methods/`; do not edit it.
A test checks that it is up to date and that the parameters below match a model.

**Notation.** $`x`$ is the stream (the input of a sub-layer), $`F`$ its branch after dropout, $`o`$ its output and
$`\\mathrm{LN}`$ a LayerNorm. $`x_0`$ is the output of the embedding, $`x_{\\mathrm{layer}}`$ the input of a layer.
$`d`$ is the model width; shapes call it `C`, the inner width of a feed-forward `F` and the number of heads `H`.
$`N`$ is the number of layers of a stack; a layer's depth
counts from 1 in its stack. A sub-layer is self-attention, cross-attention or feed-forward.

**State dict.** Every stock parameter keeps its name in fairseq. `I` is the index of a layer, from 0.
"""


# Content from the code ---------------------------------------------------------------------------------------------


def architecture_presets(family: Family, method: Method | None) -> dict[str, dict[str, Any]]:
    """All presets of every size and depth, by architecture suffix."""
    presets = {}
    for suffix in family.shapes:
        stock_arch, preset = preset_of(family, method, suffix)
        known = {name: preset[name] for name in family.presettable if name in preset}
        presets[suffix] = {**stock_sizes(family, stock_arch, known), **preset}
    return presets


def tiny_model(method: Method, **settings: Any) -> DeepTransformerModel:
    """The method's model with two layers on each side and width ``WIDTH``; ``settings`` override its preset."""
    config = Namespace(**{**architecture_presets(TRANSLATION, method)[""], **_tiny_sizes(), **settings})
    model: DeepTransformerModel = DeepTransformerModel.build_model(config, _tiny_task())
    return model


def stock_model(encoder_before: bool, decoder_before: bool) -> TransformerModelBase:
    """Build stock fairseq's Transformer of the same sizes; each stack is Pre-LN if its flag is set, else Post-LN."""
    flat = Namespace(**_tiny_sizes(), encoder_normalize_before=encoder_before, decoder_normalize_before=decoder_before)
    model: TransformerModelBase = TransformerModelBase.build_model(TransformerConfig.from_namespace(flat), _tiny_task())
    return model


def _tiny_sizes() -> dict[str, int]:
    sizes = {"layers": 2, "embed_dim": WIDTH, "ffn_embed_dim": 2 * WIDTH, "attention_heads": 2}
    flat = {f"{stack.value}_{name}": value for stack in Stack for name, value in sizes.items()}
    return {**flat, "decoder_input_dim": WIDTH, "decoder_output_dim": WIDTH}


def _tiny_task() -> SimpleNamespace:
    words = Dictionary()
    words.add_symbol("word")
    return SimpleNamespace(source_dictionary=words, target_dictionary=words)


def stock_twin(method: Method) -> TransformerModelBase:
    """The stock model whose state dict the method's is compared with: Pre-LN where there is a norm on top."""
    model = tiny_model(method)
    return stock_model(*(stack.layer_norm is not None for _, stack in model.stacks()))


def level_and_name(key: str) -> tuple[str, str]:
    """``encoder.layers.3.self_attn_residual.omega`` as (``encoder.layers.I.``, ``self_attn_residual.omega``).

    The index of another list becomes I, too: ``encoder.history.layer_norms.3.weight`` is one for each layer.
    """
    in_layer = re.fullmatch(r"(encoder|decoder)\.layers\.\d+\.(.+)", key)
    if in_layer:
        return f"{in_layer[1]}.layers.I.", in_layer[2]
    stack, _, name = key.partition(".")
    return f"{stack}.", re.sub(r"\.\d+(?=\.|$)", ".I", name)


def new_names(method: Method) -> dict[str, list[str]]:
    """Names that the method adds to the stock state dict, each with the levels where it is found."""
    stock = stock_twin(method).state_dict().keys()
    found: dict[str, list[str]] = {}
    for key in tiny_model(method).state_dict():
        level, name = level_and_name(key)
        if key not in stock and level not in found.setdefault(name, []):
            found[name].append(level)
    return found


def absent_names(method: Method) -> list[str]:
    """Stock modules and parameters that a model of the method does not have, as ``decoder.layers.I.self_attn``."""
    present = _names(tiny_model(method))
    absent = [name for name in _names(stock_twin(method)) if name not in present]
    return [name for name in absent if name.rpartition(".")[0] not in absent]


def _names(model: nn.Module) -> list[str]:
    named = (*model.named_modules(), *model.named_parameters(remove_duplicate=False))
    return list(dict.fromkeys("".join(level_and_name(name)) for name, _ in named if "." in name))


def parts_of(method: Method) -> list[Part]:
    """The method's parts in the order of the axes, each once where the stacks differ."""
    names = [(axis, name) for axis in Axis for name in method.choice(axis).split(",")]
    return [find_part(axis, name.strip()) for axis, name in dict.fromkeys(names)]


def scales_stream(method: Method) -> bool:
    """Whether a constant of the method multiplies stream, branch or norm: stock computes the same only when folded."""
    model = tiny_model(method, encoder_layers=3)  # what scales with the depth may do so from two layers
    if any(isinstance(module, ScaledLayerNorm) for module in model.modules()):
        return True
    residuals = [module for module in model.modules() if isinstance(module, Residual)]
    scales = (scale for one in residuals for scale in (one.stream_scale(), one.branch_scale()))
    return any(scale is not None and bool((scale != 1).any()) for scale in scales)


def no_fold_reasons(method: Method) -> list[str]:
    """Why the method has no plain counterpart; empty if it has one."""
    return list(dict.fromkeys(part.no_fold for part in parts_of(method) if part.no_fold))


@functools.cache
def refusals() -> dict[str, list[str]]:
    """Messages of the parts about combinations that make no sense, each with the parts that give it."""
    found: dict[str, list[str]] = {}
    # The same for every combination, and it takes longer than all else here.
    options = [(config, {stack: option_values(config, stack) for stack in Stack}) for config in _configurations()]
    for part, parts in _combinations():
        for config, values in options:
            for message in _objections(part, parts, config, values):
                givers = found.setdefault(_without_numbers(message), [])
                if _value(part) not in givers:
                    givers.append(_value(part))
    return found


def _objections(
    part: Part, parts: dict[Axis, Part], config: Namespace, values: Mapping[Stack, SimpleNamespace]
) -> list[str]:
    """Return the part's messages in either stack; ``values`` are the values of the options of ``config`` there."""
    stacks = [stack for stack in Stack if getattr(config, f"{stack.value}_layers")]  # a language model has no encoder
    designs = [design_of(config, stack, parts, values[stack]) for stack in stacks]
    return [message for design in designs for message in part.conflicts(design, config)]


def _without_numbers(message: str) -> str:
    return re.sub(r"(--[a-z-]+-(?:dim|layers)) \d+", r"\1 N", message)


def _combinations() -> Iterator[tuple[Part, dict[Axis, Part]]]:
    """Every part with every part of another axis, the rest as in stock fairseq."""
    stock = Method("", "", "", "", base_init="fairseq")
    usual = {axis: find_part(axis, stock.choice(axis)) for axis in Axis}
    for one, other in itertools.permutations(Axis, 2):
        for part, second in itertools.product(PARTS[one].values(), PARTS[other].values()):
            yield part, {**usual, one: part, other: second}


def _configurations() -> Iterator[Namespace]:
    """A plain configuration, then each single change to it that a part may object to."""
    usual = Namespace(
        **{**_tiny_sizes(), **method_preset(None)},
        layernorm_embedding=False,
        no_cross_attention=False,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        activation_dropout=0.0,
        relu_dropout=0.0,
        embedding_dropout=0.0,
        activation_fn="relu",
    )
    yield usual
    changes: list[tuple[str, Any]] = [("layernorm_embedding", True), ("no_cross_attention", True)]
    changes += [("encoder_layerdrop", 0.1), ("decoder_layerdrop", 0.1)]
    changes += [("encoder_embed_dim", 2 * WIDTH), ("encoder_layers", 3), ("encoder_layers", 0)]
    changes += [("encoder_ffn_embed_dim", 2 * WIDTH + 1), ("activation_fn", "tanh")]
    numbers = [option for option, _ in options_with_parts() if isinstance(option.default, (int, float))]
    changes += [(option.name, 0) for option in numbers if option.least is None]
    changes += [(option.name, 99) for option in numbers if option.least is not None]
    changes += [("adaptive_softmax_cutoff", "8")]
    changes += [(option.name, choice) for option, _ in options_with_parts() for choice in option.choices]
    for name, value in changes:
        yield Namespace(**{**vars(usual), name: value})


def options_with_parts() -> list[tuple[Option, list[Part]]]:
    """Every option with the parts that declare it."""
    found: dict[str, tuple[Option, list[Part]]] = {}
    for parts in PARTS.values():
        for part in parts.values():
            for option in part.options:
                found.setdefault(option.name, (option, []))[1].append(part)
    return list(found.values())


# How it is written -------------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of words."""
    return markdown_table([header, *rows], numbers=False, escape="|")


def code(text: object) -> str:
    """Inline code."""
    return f"`{text}`"


def _value(part: Part) -> str:
    return code(f"{flag(part.axis.value)} {part.name}")


def arch(method: Method) -> str:
    """The architecture without a suffix."""
    return f"{method.name}_transformer"


def _year(method: Method) -> str:
    found = re.search(r"\b(?:19|20)\d\d\b", method.paper)
    return found[0] if found else ""


def equations_table() -> str:
    """Every method in a line, by the year of its paper, and whether a trained model folds into a stock one."""
    rows = [
        (
            _year(method),
            f"[{method.title}](#{_anchor(method.title)})",
            code(method.name),
            told_by_papers(method)["what"],
            _first_formula(method.equation),
            "no" if no_fold_reasons(method) else "yes",
        )
        for method in METHODS.values()
    ]
    return table(
        ("year", "method", "`METHOD`", "what it is", "equation", "folds"), sorted(rows, key=lambda row: row[0])
    )


def _first_formula(equation: str) -> str:
    """Return ``equation`` up to the first semicolon that stands outside of a formula."""
    (first,) = re.findall(r"^(?:\$`.*?`\$|[^;])*", equation)
    return str(first)


def _linked(paper: str) -> str:
    """``Authors, venue, https://...`` with the address behind the words; several are separated by semicolons."""
    return "; ".join(re.sub(r"^(.+), (https://[^\s,]+)", r"[\1](\2)", one) for one in paper.split("; "))


def choices_table() -> str:
    """The choices of every method."""
    rows = [
        (f"[{m.title}](#{_anchor(m.title)})", code(arch(m)), *(code(m.choice(axis)) for axis in Axis))
        for m in METHODS.values()
    ]
    return table(("method", "`--arch`", *(code(flag(axis.value)) for axis in Axis)), rows)


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def architectures() -> str:
    """The suffixes of the architectures and what they mean."""
    presets = architecture_presets(TRANSLATION, None)
    sizes = [(code(f"…_transformer{suffix}"), code(stock), *_sizes(presets[suffix])) for suffix, stock in SIZES.items()]
    depths = [(code(f"…{suffix}"), *map(str, depth)) for suffix, depth in DEPTHS.items() if depth is not None]
    return "\n\n".join(
        [
            "## Architectures",
            "An architecture is called `METHOD_transformer`, then a size, then a depth, for instance "
            "`admin_transformer_wmt_en_de_18`. `deep_transformer` with the same suffixes is a stock Transformer until "
            "the flags of the axes say otherwise. Settings of the command line or the YAML file come first, then those "
            "of the architecture.",
            "Sizes, from fairseq's own architectures:",
            table(("architecture", "sizes of", "layers", "width", "feed-forward", "heads", "dropout"), sizes),
            "Depths, after any size:",
            table(("suffix", "encoder layers", "decoder layers"), depths),
            family_section("Language models", "language_modeling", DeepTransformerLanguageModel),
            family_section("Speech to text", "speech_to_text", DeepS2TTransformerModel),
        ]
    )


def _sizes(preset: Mapping[str, Any], stacks: Sequence[Stack] = tuple(Stack)) -> tuple[str, ...]:
    """Layers, width, feed-forward width and heads, the encoder's first where the stacks differ; then the dropout."""
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    values = [dict.fromkeys(str(preset[f"{stack.value}_{name}"]) for stack in stacks) for name in names]
    return (*map(", ".join, values), str(preset["dropout"]))


def family_section(title: str, task: str, model: type[DesignedModel]) -> str:
    """The architectures of a family other than translation, and the methods that are left out."""
    family = model.family
    presets = architecture_presets(family, None)
    rows = []
    for suffix, size in family.sizes.items():
        beside = [name for name in size.changes if name != "dropout" and not name.startswith("decoder")]
        settings = ", ".join(code(f"{flag(name)} {size.changes[name]}") for name in beside)
        shape = _sizes(presets[suffix], family.stacks)
        rows.append((code(f"…{family.suffix}{suffix}"), code(size.stock) + (settings and f" with {settings}"), *shape))
    left_out = [
        (f"[{method.title}](#{_anchor(method.title)})", "; ".join(refusals_in(model.config_class, method)))
        for method in METHODS.values()
        if refusals_in(model.config_class, method)
    ]
    written = [
        f"### {title}",
        f"Task {code(task)}. An architecture is called `METHOD{family.suffix}`, then a size; {code(family.model)} with "
        "the same sizes is a stock Transformer until the flags of the axes say otherwise.",
        table(("architecture", "settings of", "layers", "width", "feed-forward", "heads", "dropout"), rows),
    ]
    if left_out:
        written += ["Every method has these architectures, except:", table(("method", "why not"), left_out)]
    else:
        written.append("Every method has these architectures.")
    return "\n\n".join(written)


def method_section(method: Method) -> str:
    """All about one method."""
    parts = [f"## {method.title}", f"{_linked(method.paper)}. Architecture: `{arch(method)}`.", f"{method.equation}."]
    parts.append(
        table(
            ("axis", "choice", "meaning"),
            ((code(flag(part.axis.value)), code(part.name), part.summary) for part in parts_of(method)),
        )
    )
    options = list(dict.fromkeys(option for part in parts_of(method) for option in part.options))
    if options:
        parts += ["Options:", _options_table(options, method_preset(method))]
    parts += _state_dict(method)
    if method.departures:
        parts += ["Released code and text:", "\n".join(f"- {departure}" for departure in method.departures)]
    parts.append(f"**Fold:** {_fold(method)}")
    return "\n\n".join(parts)


def _options_table(options: Sequence[Option], preset: Mapping[str, Any]) -> str:
    rows = [
        (code(flag(o.name)), ", ".join(map(code, o.choices)) or "a number", code(preset[o.name]), o.help)
        for o in options
    ]
    return table(("option", "values", "default", "meaning"), rows)


def _state_dict(method: Method) -> list[str]:
    documented = {parameter.name: parameter for part in parts_of(method) for parameter in part.parameters}
    rows = [_parameter_row(name, levels, documented.get(name)) for name, levels in new_names(method).items()]
    absent = absent_names(method)
    if not rows and not absent:
        return ["The state dict is that of stock fairseq."]
    written = []
    if rows:
        written += ["New in the state dict:", table(("name", "below", "shape", "kind", "initial value"), rows)]
    if absent:
        written.append(f"Stock names that do not exist: {', '.join(map(code, absent))}.")
    return written


def _parameter_row(name: str, levels: Sequence[str], parameter: NewParameter | None) -> tuple[str, ...]:
    if parameter is None:
        raise SystemExit(f"error: no part documents '{name}': add a NewParameter to it")
    kind = "buffer" if parameter.buffer else "parameter"
    return code(name), ", ".join(map(code, levels)), code(parameter.shape), kind, parameter.initial


def _fold(method: Method) -> str:
    reasons = no_fold_reasons(method)
    if reasons:
        return f"not supported: {'; '.join(reasons)}."
    if new_names(method) or scales_stream(method):
        return "`fairseq-deep fold` turns it into a checkpoint that stock `--arch transformer` loads."
    return "the weights are a stock Transformer's; `fairseq-deep fold` rewrites the options around them for stock."


def parts_section() -> str:
    """Every legal value of every axis."""
    written = [
        "## Parts",
        "Each axis of `--arch deep_transformer`, or of any architecture of a method, takes one of these names, or "
        "`ENCODER,DECODER` if the stacks differ. The names define everything about a model except its sizes.",
    ]
    for axis in Axis:
        rows = [
            (code(part.name), part.summary, ", ".join(code(flag(o.name)) for o in part.options), part.no_fold or "yes")
            for part in PARTS[axis].values()
        ]
        written.append(f"### `{flag(axis.value)}`: {AXIS_HELP[axis]}")
        written.append(table(("value", "meaning", "options", "folds"), rows))
    refused = [(", ".join(givers), message) for message, givers in refusals().items()]
    written += [
        "### Combinations that are not supported",
        "This table comes from trying every pair of parts. All problems of a command are reported together, before a "
        "model is built.",
        table(("choice", "message"), refused),
        "These fairseq settings are not supported either; a non-default value is an error: "
        f"{', '.join(code(flag(name)) for name in UNSUPPORTED)}. Stock fairseq 0.12.3.1 accepts the last four, "
        "NormFormer's, and builds nothing of them.",
    ]
    return "\n\n".join(written)


LEFT_OUT = (
    ("LIMe", "2502.09245", "keys and values of a layer mix those of all layers below: several inputs to one sub-layer"),
    ("MUDDFormer", "2502.12170", "a dense connection each for queries, keys, values and stream: several inputs, too"),
    ("DeepCrossAttention", "2502.06785", "the same, with a mixture for each of queries, keys and values"),
    ("nGPT", "2410.01131", "every matrix is normalised after each update, by a hook into the optimizer"),
    (
        "Catformer",
        "",
        "concatenates the outputs of all layers (Davis et al., ICML 2021): a width that grows with depth",
    ),
)
"""Methods that are not here: title, number at arXiv, why not."""


def left_out_section() -> str:
    """What someone might look for in vain."""
    rows = [(f"[{title}](https://arxiv.org/abs/{at})" if at else title, why) for title, at, why in LEFT_OUT]
    return "## Methods that are not here\n\n" + table(("method", "what stands in the way"), rows)


def options_section() -> str:
    """Every option once."""
    rows = [
        (
            code(flag(option.name)),
            ", ".join(map(_value, parts)),
            code(option.default),
            ", ".join(map(code, option.choices)) or "a number",
        )
        for option, parts in options_with_parts()
    ]
    header = ("option", "belongs to", "default", "values")
    return "## Options\n\nEach takes one value, or `ENCODER,DECODER`.\n\n" + table(header, rows)


def methods_page() -> str:
    """``docs/methods.md``."""
    sections = [INTRODUCTION.rstrip(), equations_table(), choices_table(), architectures()]
    sections += [method_section(method) for method in METHODS.values()]
    sections += [parts_section(), options_section(), left_out_section()]
    return "\n\n".join(sections) + "\n"


# Choosing ----------------------------------------------------------------------------------------------------------

NOT_STATED, NOT_RUN = "not stated", "not run"
SHORT = {"falls to the word frequencies": "frequencies only", "falls, still above the word frequencies": "not yet"}
"""Verdicts of benchmarks/deep_stability.py in a cell."""
TOO_SHORT = {"60-12": (), "100-100": tuple(SHORT)}
"""Verdicts that say nothing after as few updates as there were at a depth."""
STEPS = "A training step of every method"
DECODING = "Beam search of every method"
"""Headings in the pages of measurements."""
MEASUREMENTS = {STEPS: ("cpu.md",), DECODING: ("xeon_amx.md", "cpu.md")}
"""Pages in benchmarks/results; a later one has what an earlier one lacks, and its figures say so."""

ON_GPU = ("A training step of 512 sentences and 4,096 tokens, methods in fp16", "A training step of the newer methods")
"""Headings in the page of a GPU."""


def choosing_table() -> str:
    """One row a method: measured figures, what the papers print, and what the code folds and exports."""
    steps, memory = measured(STEPS)
    (decoding,) = measured(DECODING)
    for heading in ON_GPU:
        on_gpu, _ = _measured_on("gpu_nvidia_h200.md", heading)
        steps |= {arch: f"{steps[arch]}; GPU {figure}" for arch, figure in on_gpu.items() if arch in steps}
    here, scores = trained_here(*TOO_SHORT), depth_tables.mean_scores(depth_tables.read(), "18e18d")
    rows = []
    for method, told in ((method, told_by_papers(method)) for method in METHODS.values()):
        folds, exports = folds_and_exports(method)
        rows.append(
            (
                f"[{method.title}](methods.md#{_anchor(method.title)})",
                "; ".join(filter(None, [*depths_of_papers(method), told["depth"]])) or NOT_STATED,
                "; ".join(found[method.name] for found in (here, scores) if method.name in found) or NOT_RUN,
                *(found.get(arch(method), "not measured") for found in (steps, decoding, memory)),
                told["warm_up"] or _warm_up_of_configuration(method) or NOT_STATED,
                "yes" if folds else "no",
                "yes" if exports else "no",
                told["batch"] or NOT_STATED,
            )
        )
    header = ("method", "papers", "here", "step", "decoding", "memory", "warm-up", "folds", "exports", "batch size")
    return table(header, rows)


def told_by_papers(method: Method) -> dict[str, str]:
    """The method's row of docs/choosing.tsv, which has what no other file of this package says; empty without one."""
    return _told().get(method.name, dict.fromkeys(("what", "depth", "warm_up", "batch"), ""))


@functools.cache
def _told() -> dict[str, dict[str, str]]:
    return {row["method"]: row for row in _rows(ROOT / "docs" / "choosing.tsv")}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def measured(heading: str) -> list[dict[str, str]]:
    """The tables of the sections with this heading: the third cell of each row, by architecture."""
    names = MEASUREMENTS[heading]
    pages = [_measured_on(name, heading) for name in names]
    for later, name in zip(pages[1:], names[1:], strict=True):
        for table, more in zip(pages[0], later, strict=True):
            table |= {arch: f"{figure}, {name}" for arch, figure in more.items() if arch not in table}
    return pages[0]


def _measured_on(page: str, heading: str) -> list[dict[str, str]]:
    text = (ROOT / "benchmarks" / "results" / page).read_text(encoding="utf-8")
    (section,) = (part for part in text.split("\n## ") if part.startswith(heading))
    tables = re.findall(r"(?:^\|.*\n?)+", section, flags=re.MULTILINE)
    return [dict(map(_name_and_ratio, found.splitlines()[2:])) for found in tables]


def _name_and_ratio(row: str) -> tuple[str, str]:
    cells = [cell.strip() for cell in row.split("|")]
    return cells[1].partition(" ")[0], re.sub(r"\d\.\d+", lambda number: f"{float(number[0]):.2f}", cells[3])


def trained_here(*depths: str) -> dict[str, str]:
    """What benchmarks/results/deep_stability.tsv says at these depths, by method; the first row of a method counts."""
    found: dict[str, dict[str, str]] = {}
    for row in _rows(ROOT / "benchmarks" / "results" / "deep_stability.tsv"):
        depth, verdict = row["layers"], row["verdict"]
        if depth in depths and verdict not in TOO_SHORT[depth]:
            found.setdefault(row["method"], {}).setdefault(depth, SHORT.get(verdict, verdict))
    return {name: "; ".join(f"{depth} {verdict}" for depth, verdict in each.items()) for name, each in found.items()}


def depths_of_papers(method: Method) -> list[str]:
    """The deepest translation model and language model of published.tsv that trained, the shallowest that failed."""
    found = []
    for language in (False, True):
        trained, failed = (_rows_by_depth(method, language, failed) for failed in (False, True))
        found += [_cited(trained[max(trained)])] if trained else []
        failed = {depth: rows for depth, rows in failed.items() if depth not in trained}
        found += [f"fails at {_cited(failed[min(failed)])}"] if failed else []
    return found


def _deepest(method: Method) -> list[PublishedRow]:
    """The published rows of the method's deepest model that trained."""
    kinds = [_rows_by_depth(method, language, failed=False) for language in (False, True)]
    return max(((max(rows), rows[max(rows)]) for rows in kinds if rows), default=(0, []), key=lambda one: one[0])[1]


OUR_CHOICE = ("more than 12 layers", "does not name the methods")
"""Parts of the remark of rows whose depth or method the paper does not print."""


def _rows_by_depth(method: Method, language: bool, failed: bool) -> dict[int, list[PublishedRow]]:
    """Published rows of the method by its number of layers; rows that change the model or the batch are left out."""
    found: dict[int, list[PublishedRow]] = {}
    texts = r"enwik8|wikitext" if language else r"wmt|iwslt"
    for row in ROWS:
        name = re.match(rf"(?:{texts})\w*/(\w+?)_(?:(\d+)e)?(\d+)d(?!.*no_warmup)", row.config)
        changed = any(setting.startswith(("model.", "optimization.")) for setting in row.overrides)
        printed = not any(remark in row.note for remark in OUR_CHOICE)
        if name and name[1] == method.name and printed and not changed and row.failed == failed:
            found.setdefault(int(name[2] or 0) + int(name[3]), []).append(row)
    return found


def _cited(rows: Sequence[PublishedRow]) -> str:
    """``18-18 (Admin Table 2; B2T Table 1)``: the layers of the first row, and the first table of each paper."""
    layers = re.findall(r"(\d+)[ed](?=\d|_|$)", rows[0].config)
    tables: dict[str, str] = {}
    for row in rows:
        tables.setdefault(row.paper, row.table)
    cited = "; ".join(map(" ".join, tables.items()))
    return f"{'-'.join(layers)}{' of a language model' if len(layers) == 1 else ''} ({cited})"


def _warm_up_of_configuration(method: Method) -> str:
    """The warm-up of the method's deepest configuration of a paper."""
    rows = _deepest(method)
    if not rows:
        return ""
    path = f"configs/{rows[0].config}.yaml"
    found = re.search(r"warmup_updates: (\d+)", (ROOT / path).read_text(encoding="utf-8"))
    return f"used: {int(found[1]):,} updates ([{rows[0].paper}](../{path}))" if found else ""


@functools.cache
def grown_model(name: str) -> DeepTransformerModel:
    """A method's model of eight and eight layers, as after a training."""
    model = tiny_model(METHODS[name], encoder_layers=8, decoder_layers=8)
    model.set_num_updates(10**6)
    return model


def branch_scales(model: nn.Module) -> list[Tensor | None]:
    """The factors of all branches; None where the stream has one."""
    return [module.branch_scale() for module in model.modules() if isinstance(module, Residual)]


def folds_and_exports(method: Method) -> tuple[bool, bool]:
    """Whether ``fairseq-deep fold`` and ``fairseq-deep export`` take a trained model."""
    from fairseq_plugins.tools.translator.ctranslate2_model import obstacles_to_export  # for this page alone

    model = grown_model(method.name)
    folds = not obstacles(model)
    sums = all(scale is not None for scale in branch_scales(model))
    return folds, (folds or sums) and not obstacles_to_export(model)


EXPORTED = {
    "plain": "as it is",
    "stream": "the scale of the stream goes into the weights, as `fairseq-deep fold` does it",
    "branch": "factors of the branches go into their last maps",
    "no norm": "the same, and norms that change nothing (below)",
    "shift": "the same; shifts go into the biases of the maps that read them",
}
"""What the export does with a model, by what it has."""


def exports_table() -> str:
    """What ``fairseq-deep export`` does with the methods that it takes."""
    methods = [method.name for method in METHODS.values() if folds_and_exports(method)[1]]
    taken = {what: [code(name) for name in methods if exported_as(grown_model(name)) == what] for what in EXPORTED}
    refused = (
        "refused, with every reason at once: CTranslate2 has no such operation. `fairseq-deep translate` runs them"
    )
    rows = [(", ".join(names), EXPORTED[what]) for what, names in taken.items()]
    return table(("method", "how"), [*rows, ("all others; `--norm-on-top yes`", refused)])


def exported_as(model: nn.Module) -> str:
    """The key of ``EXPORTED`` for a model."""
    modules = list(model.modules())
    if any(isinstance(module, AffineNorm) for module in modules):
        return "shift"
    if not any(isinstance(module, nn.LayerNorm) for module in modules):
        return "no norm"
    scales = branch_scales(model)
    if any(scale is None for scale in scales):
        return "stream"
    if any(bool((scale != 1).any()) for scale in scales if scale is not None):
        return "branch"
    return "plain"


def patches_table() -> str:
    """One row for each bug of fairseq that the package patches."""
    rows = []
    for name in patches.MODULES:
        text = (import_module(f"{patches.__name__}.{name}").__doc__ or "").strip()
        bug = re.sub(r"\s+", " ", text.partition("\n\n")[0]).replace("``", "`")
        rows.append((f"[`{name}`](../fairseq_plugins/patches/{name}.py)", bug, _threads(text)))
    return table(("module", "bug", "upstream"), rows)


def _threads(text: str) -> str:
    """Links to the upstream threads that ``text`` names."""
    addresses: set[str] = set(re.findall(r"https://github\.com/facebookresearch/fairseq/(?:issues|pull)/\d+", text))
    ordered = sorted(addresses, key=lambda address: int(address.rpartition("/")[2]))
    return ", ".join(f"[#{address.rpartition('/')[2]}]({address})" for address in ordered) or "not reported"


def published() -> str:
    """Every published result, a table for each table of a paper; values that all its rows share are above it."""
    return "\n\n".join(_published_table(paper, name, rows) for (paper, name), rows in rows_by_table().items())


def _published_table(paper: str, name: str, rows: Sequence[PublishedRow]) -> str:
    columns: dict[str, list[str]] = {
        "row": [row.row for row in rows],
        "configuration": [_configuration(row) for row in rows],
        "seeds": [", ".join(map(str, row.seeds)) for row in rows],
        "tokens per update": ["" if row.tokens_per_update is None else f"{row.tokens_per_update:,}" for row in rows],
        "GPUs": [str(row.gpus or "") for row in rows],
        "GPU-days": ["" if row.gpu_days is None else f"{row.gpu_days:g}" for row in rows],
        "average": [row.average for row in rows],
        "test set": [_test_sets(row.test) for row in rows],
        "score": [f"{row.metric}, {row.scorer}" if row.metric == "BLEU" else row.metric for row in rows],
        "printed": [row.printed for row in rows],
        "run here": [row.run_here for row in rows],
        "remark": [row.note for row in rows],
    }
    own = ("row", "configuration", "printed", "run here")
    shared = {head: cells[0] for head, cells in columns.items() if head not in own and len(set(cells)) == 1}
    said = "; ".join(f"{head}: {value}" for head, value in shared.items() if value)
    shown = {head: cells for head, cells in columns.items() if head not in shared}
    lines = [f"### {paper}, {name}", f"    {rows[0].command}", f"For all rows: {said}."]
    return "\n\n".join([*lines, table(tuple(shown), zip(*shown.values(), strict=True))])


def _test_sets(names: Sequence[str]) -> str:
    """Their names; those of many years as the first and the last."""
    return ", ".join(names) if len(names) < 5 else f"{names[0]} to {names[-1]}"


def _configuration(row: PublishedRow) -> str:
    link = f"[{row.config}](../configs/{row.config}.yaml)"
    return " ".join([link, *(["with"] if row.overrides else []), *map(code, row.overrides)])


def with_block(page: str, name: str, content: str) -> str:
    """``page`` with ``content`` in the block ``name``.

    Raises:
        ValueError: the page has no such block.
    """
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"one block '{name}' expected")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


DEPTH = ROOT / "docs" / "results" / "depth.md"


def depth_page() -> str:
    """The page of the study of depth, with its tables."""
    page, lines = DEPTH.read_text(encoding="utf-8"), depth_tables.read()
    for depth in ("6e6d", "18e18d", "36e12d"):
        page = with_block(page, depth, depth_tables.results_table(lines, depth))
    page = with_block(page, "long", depth_tables.long_table(lines))
    page = with_block(page, "verdicts", depth_tables.verdicts_table(lines))
    page = with_block(page, "sweep", depth_tables.sweep_table(lines))
    return with_block(page, "sensitivity", depth_tables.sensitivity_table(lines))


def pages() -> dict[Path, str]:
    """Every page that has generated text, by its path, as it should be."""
    names = "fairseq", "reproduction", "choosing", "translating"
    fairseq, reproduction, choosing, translating = (ROOT / "docs" / f"{name}.md" for name in names)
    return {
        ROOT / "docs" / "methods.md": methods_page(),
        fairseq: with_block(fairseq.read_text(encoding="utf-8"), "patches", patches_table()),
        reproduction: with_block(reproduction.read_text(encoding="utf-8"), "published", published()),
        choosing: with_block(choosing.read_text(encoding="utf-8"), "choosing", choosing_table()),
        translating: with_block(translating.read_text(encoding="utf-8"), "exports", exports_table()),
        DEPTH: depth_page(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    check = parser.parse_args(argv).check
    stale = [
        (path, text) for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if check:
            print(f"error: {path.relative_to(ROOT)} is out of date: run `python docs/generate.py`", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: written")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
