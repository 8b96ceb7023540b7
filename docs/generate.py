"""Write the generated documentation: ``docs/methods.md`` and the marked blocks of other pages.

``python docs/generate.py`` writes them; ``python docs/generate.py --check`` only says which are out of date (exit
code 1). A block is between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``.
"""

import argparse
import functools
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
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
from fairseq_plugins.core.config import UNSUPPORTED, design_of, value_of
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.fields import Family
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.method import METHODS, PARTS, Axis, Method, Option, Part, Stack, find_part
from fairseq_plugins.core.model import DEPTHS, SIZES, TRANSLATION, DeepTransformerModel
from fairseq_plugins.core.norm import AffineNorm, ScaledLayerNorm
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.speech_to_text import DeepS2TTransformerModel
from fairseq_plugins.errors import flag
from fairseq_plugins.tables import markdown_table
from fairseq_plugins.tools.pipeline.published import ROWS, PublishedRow, rows_by_table

sys.path.append(str(Path(__file__).resolve().parent))
import depth_tables
import speed_tables

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 8
"""Width of the tiny models that are built to look at their state dict."""

INTRODUCTION = """\
<!-- Written by docs/generate.py from fairseq_plugins/methods/: change these files. A test compares it with models. -->
# Methods

**Not read in full.** The papers of {not_read} were not read in full.
Their methods follow abstracts, quotations or released code, as their sections say.

**Notation.** $`x`$ is the stream (the input of a sub-layer), $`F`$ its branch after dropout, $`o`$ its output and
$`\\mathrm{{LN}}`$ a LayerNorm. $`x_0`$ is the output of the embedding and $`x_{{\\mathrm{{layer}}}}`$ the input of a
layer.
$`d`$ is the model width; shapes call it `C`, the inner width of a feed-forward `F` and the number of heads `H`.
$`N`$ is the number of layers of a stack. Depths count from 1 in each stack. A sub-layer is self-attention,
cross-attention or feed-forward.

**Sections.** A section gives the parts of a method as flags; [Parts](#parts) says what each of them means.
*Not with* names values of other axes and settings of fairseq that a method refuses; the command says why.
*Configuration* belongs to the deepest model that the paper trained, with its highest learning rate and its warm-up.
The last points say where text, released code and this package differ.

**Folds.** *yes*: `fairseq-deep fold` makes a checkpoint that stock `--arch transformer` loads. *is stock*: the weights
already are a stock Transformer's, and the fold rewrites the options. [Parts](#parts) says why the others do not fold.

**State dict.** Every stock parameter keeps its name in fairseq. New parameters are below `encoder.layers.I.` and
`decoder.layers.I.`, with `I` the index of a layer, from 0; other places are named. `S` stands for each of `self_attn`,
`encoder_attn` (decoder only) and `ffn`.
"""
NOT_READ = ("DeepScaleLM", "BranchNorm", "SpanNorm", "NormFormer", "RealFormer")
"""Titles of the methods whose papers were not read in full."""


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
    return _tiny_model(method.name, **settings)


@functools.cache
def _tiny_model(name: str, **settings: Any) -> DeepTransformerModel:
    config = Namespace(**{**architecture_presets(TRANSLATION, METHODS[name])[""], **_tiny_sizes(), **settings})
    model: DeepTransformerModel = DeepTransformerModel.build_model(config, _tiny_task())
    return model


@functools.cache
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
    model = tiny_model(method, encoder_layers=3)  # a value that scales with the depth may do so from two layers
    if any(isinstance(module, ScaledLayerNorm) for module in model.modules()):
        return True
    residuals = [module for module in model.modules() if isinstance(module, Residual)]
    scales = (scale for one in residuals for scale in (one.stream_scale(), one.branch_scale()))
    return any(scale is not None and bool((scale != 1).any()) for scale in scales)


def no_fold_reasons(method: Method) -> list[str]:
    """Why the method has no plain counterpart; empty if it has one."""
    return list(dict.fromkeys(part.no_fold for part in parts_of(method) if part.no_fold))


STOCK_SETTINGS: tuple[tuple[str, Any], ...] = (
    ("layernorm_embedding", True),
    ("no_cross_attention", True),
    ("encoder_layerdrop", 0.1),
    ("decoder_layerdrop", 0.1),
    ("activation_fn", "tanh"),
    ("adaptive_softmax_cutoff", "8"),
)
"""Settings of fairseq that a part may refuse, each with a value that asks for it."""


def refused_with(method: Method) -> list[str]:
    """Values of the axes that neither stack of the method can have, and fairseq's settings that it refuses."""
    preset = Namespace(**architecture_presets(TRANSLATION, method)[""])
    config = Namespace(**{**_plain_settings(), **vars(preset), **_tiny_sizes()})
    assert not _objections(config), method.name
    found = []
    for axis in Axis:
        chosen = {name.strip() for name in method.choice(axis).split(",")}
        others = [name for name in PARTS[axis] if name not in chosen]
        encoder, decoder = (value_of(config, axis.value, stack) for stack in Stack)
        refused = []
        for name in others:
            places = (name, f"{name},{decoder}", f"{encoder},{name}")
            if all(_objections(Namespace(**{**vars(config), axis.value: place})) for place in places):
                refused.append(name)
        if refused and len(refused) == len(others):
            found.append(f"any other {code(flag(axis.value))}")
        elif refused:
            found.append(f"{code(flag(axis.value))} {', '.join(map(code, refused))}")
    changed = [name for name, value in STOCK_SETTINGS if _objections(Namespace(**{**vars(config), name: value}))]
    return found + [code(flag(name)) for name in changed]


def _objections(config: Namespace) -> list[str]:
    """Return the messages of all parts of a configuration about the others."""
    messages = []
    for stack in Stack:
        design = design_of(config, stack)
        messages += [message for part in design.parts.values() for message in part.conflicts(design, config)]
    return messages


def _plain_settings() -> dict[str, Any]:
    off = ("encoder_layerdrop", "decoder_layerdrop", "activation_dropout", "relu_dropout", "embedding_dropout")
    settings = {"layernorm_embedding": False, "no_cross_attention": False, "activation_fn": "relu"}
    return {**settings, **dict.fromkeys(off, 0.0), **method_preset(None)}


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
    """Every method in a line, by the year of its paper."""
    rows = [
        (
            _year(method),
            f"[{method.title}](#{_anchor(method.title)})",
            code(method.name),
            told_by_papers(method)["what"],
            _first_formula(method.equation),
            folds_into_stock(method),
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
            "the flags of the axes say otherwise. The command line or the YAML file overrides the architecture.",
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
    options = list(dict.fromkeys(option for part in parts_of(method) for option in part.options))
    preset = method_preset(method)
    lines = [f"- Option {_option(option, preset[option.name])}" for option in options]
    lines += _state_dict(method)
    refused = refused_with(method)
    lines += [f"- Not with: {'; '.join(refused)}"] if refused else []
    if rows := _deepest(method):
        rate, warm_up = (_setting(rows[0], name) for name in ("lr", "warmup_updates"))
        lines.append(
            f"- Configuration: [{rows[0].config}](../configs/{rows[0].config}.yaml) ({rows[0].paper}), rate {rate}, "
            + (f"warm-up of {int(warm_up):,} updates" if warm_up else "no warm-up stated")
        )
    lines += [f"- {departure}" for departure in method.departures]
    head = (
        f"## {method.title}\n{_linked(method.paper)}. Architecture: {code(arch(method))}, {code(own_flags(method))}. "
        f"Equation: {method.equation}."
    )
    return "\n\n".join([head, "\n".join(lines)])


def own_flags(method: Method) -> str:
    """The flags of the method's parts that the original Transformer does not have, and of its base initialization."""
    stock = Method("", "", "", "")
    axes = [axis for axis in Axis if axis is Axis.BASE_INIT or method.choice(axis) != stock.choice(axis)]
    return " ".join(f"{flag(axis.value)} {method.choice(axis)}" for axis in axes)


def _option(option: Option, default: Any) -> str:
    values = ", ".join(map(code, option.choices))
    return f"{code(flag(option.name))} (default {code(default)}{'; ' if values else ''}{values}): {option.help}"


def _setting(row: PublishedRow, name: str) -> str:
    """A setting of a published configuration, as its file has it; empty without one."""
    text = (ROOT / f"configs/{row.config}.yaml").read_text(encoding="utf-8")
    found = re.search(rf"^ +{name}: \[?([\d.e-]+)", text, re.MULTILINE)
    return found[1] if found else ""


def _state_dict(method: Method) -> list[str]:
    """The lines on what the method adds to stock fairseq's state dict, and what is not there."""
    documented = {parameter.name: parameter for part in parts_of(method) for parameter in part.parameters}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, levels in new_names(method).items():
        if name not in documented:
            raise SystemExit(f"error: no part documents '{name}': add a NewParameter to it")
        parameter = documented[name]
        prefix, dot, rest = name.partition("_residual.")
        shown = f"S{dot}{rest}" if dot and prefix in SUB_LAYERS and _in_all(name, new_names(method)) else name
        inside = all(level.endswith("layers.I.") for level in levels)
        place = "" if inside and (len(levels) == 2 or shown.startswith("S_") or "encoder_attn" in name) else levels
        key = ("buffer" if parameter.buffer else "parameter", parameter.shape, parameter.initial)
        names = alike.setdefault((*key, ", ".join(map(code, place))), [])
        names += [shown] if shown not in names else []
    lines = [
        f"- New {kind} {', '.join(map(code, names))}{place and ' below '}{place}, {code(shape)}: {initial}"
        for (kind, shape, initial, place), names in alike.items()
    ]
    absent = absent_names(method)
    return lines + ([f"- Not there: {', '.join(map(code, _briefly(absent)))}"] if absent else [])


SUB_LAYERS = ("self_attn", "encoder_attn", "ffn")


def _in_all(name: str, names: Mapping[str, Sequence[str]]) -> bool:
    """Whether all sub-layers of both stacks have a parameter of this name."""
    rest = name.partition("_residual.")[2]
    levels = [set(names.get(f"{sub_layer}_residual.{rest}", ())) for sub_layer in SUB_LAYERS]
    return levels == [{"encoder.layers.I.", "decoder.layers.I."}, {"decoder.layers.I."}] + levels[:1]


def _briefly(names: Sequence[str]) -> list[str]:
    """Names with ``*`` for what is absent from all of a module's children and from both stacks."""
    inner = [name.removeprefix("encoder.").removeprefix("decoder.") for name in names]
    both = [name for name in dict.fromkeys(inner) if inner.count(name) == 2]
    return [f"*.{name}" for name in both] + [name for name, one in zip(names, inner, strict=True) if one not in both]


def folds_into_stock(method: Method) -> str:
    """Whether a trained model folds into a stock one, or already has the weights of stock."""
    if no_fold_reasons(method):
        return "no"
    return "yes" if new_names(method) or scales_stream(method) else "is stock"


def parts_section() -> str:
    """Every legal value of every axis, and the options that no method has."""
    written = [
        "## Parts",
        "Each axis of `--arch deep_transformer`, or of any architecture of a method, takes one of these names, or "
        "`ENCODER,DECODER` if the stacks differ. The names define everything about a model except its sizes. "
        "Each option takes one value, or `ENCODER,DECODER`.",
    ]
    rows = [
        (
            f"{code(flag(axis.value))} {code(part.name)}",
            part.summary,
            ", ".join(code(flag(o.name)) for o in part.options),
            part.no_fold or "yes",
        )
        for axis in Axis
        for part in PARTS[axis].values()
    ]
    written.append(table(("axis and value", "meaning", "options", "folds"), rows))
    used = {option.name for method in METHODS.values() for part in parts_of(method) for option in part.options}
    unused = [option for option, _ in options_with_parts() if option.name not in used]
    if unused:
        written += [
            "Options of parts that no method has:",
            "\n".join(f"- {_option(option, option.default)}" for option in unused),
        ]
    written.append(
        "These fairseq settings are not supported; a non-default value is an error: "
        f"{', '.join(code(flag(name)) for name in UNSUPPORTED)}. Stock fairseq 0.12.3.1 accepts the last four, "
        "NormFormer's, and builds nothing of them. All problems of a command are reported together, before a model is "
        "built."
    )
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
    """Methods that a reader might look for in vain."""
    rows = [(f"[{title}](https://arxiv.org/abs/{at})" if at else title, why) for title, at, why in LEFT_OUT]
    return "## Methods that are not here\n\n" + table(("method", "why not"), rows)


def methods_page() -> str:
    """``docs/methods.md``."""
    *most, last = (f"[{title}](#{_anchor(title)})" for title in NOT_READ)
    introduction = INTRODUCTION.format(not_read=f"{', '.join(most)} and {last}").rstrip()
    sections = [introduction, equations_table(), architectures(), *map(method_section, METHODS.values())]
    sections += [parts_section(), left_out_section()]
    return "\n\n".join(sections) + "\n"


# Choosing ----------------------------------------------------------------------------------------------------------

NOT_STATED, NOT_RUN = "not stated", "not run"
STEPS, DECODING = ("epyc_step_fused_adam",), ("xeon_search_every_method", "epyc_search_6")
ON_GPU = ("h200_step_fp16", "h200_step_newer")
"""Measurements in benchmarks/results; a later one has what an earlier one lacks."""


def choosing_table() -> str:
    """One row a method: measured figures, what the papers print, and what the code folds and exports."""
    steps, on_gpu, decoding = (measured(names) for names in (STEPS, ON_GPU, DECODING))
    memory = {row["model"]: row["to_stock"] for row in _results("memory", STEPS[0])}
    kernels = {name: row["launches to post_ln"] for name, row in counted_kernels().items()}
    scores = depth_tables.mean_scores(depth_tables.read(), "18e18d")
    rows = []
    for method, told in ((method, told_by_papers(method)) for method in METHODS.values()):
        folds, exports = folds_and_exports(method)
        rows.append(
            (
                f"[{method.title}](methods.md#{_anchor(method.title)})",
                "; ".join(filter(None, [*depths_of_papers(method), told["depth"]])) or NOT_STATED,
                scores.get(method.name, NOT_RUN),
                *(found.get(method.name, "not measured") for found in (steps, on_gpu, kernels, decoding, memory)),
                told["warm_up"] or _warm_up_of_configuration(method) or NOT_STATED,
                "yes" if folds else "no",
                "yes" if exports else "no",
                told["batch"] or NOT_STATED,
            )
        )
    header = (
        "method",
        "papers",
        "our BLEU",
        "CPU step",
        "GPU step",
        "kernels",
        "decoding",
        "memory",
        "warm-up",
        "folds",
        "exports",
        "batch size",
    )
    return table(header, rows)


@functools.cache
def counted_kernels() -> dict[str, dict[str, str]]:
    """Kernels of a pair of layers on a GPU, by method."""
    return {row["method"]: row for row in speed_tables.rows_of("benchmarks/results/kernels.tsv")}


def kernels_table() -> str:
    """The methods whose layers were counted compiled, and those whose layers are the heaviest."""
    rows = [
        (code(name), f"{row['launches']} ({row['launches to post_ln']})", _compiled(row))
        for name, row in counted_kernels().items()
        if row["compiled"] or float(row["launches to post_ln"]) >= 2
    ]
    return table(("method", "eager (to `post_ln`)", "compiled (to `post_ln`)"), rows)


def _compiled(row: Mapping[str, str]) -> str:
    return f"{row['compiled']} ({row['compiled to post_ln']})" if row["compiled"] else "not counted"


def told_by_papers(method: Method) -> dict[str, str]:
    """The method's row of docs/choosing.tsv, which has what no other file of this package says; empty without one."""
    return _told().get(method.name, dict.fromkeys(("what", "depth", "warm_up", "batch"), ""))


@functools.cache
def _told() -> dict[str, dict[str, str]]:
    return {row["method"]: row for row in speed_tables.rows_of("docs/choosing.tsv")}


def measured(names: Sequence[str]) -> dict[str, str]:
    """Time by the processor's clock relative to stock, with quartiles, by model."""
    found: dict[str, str] = {}
    for name in names:
        for row in _results("times", name):
            if row["setting"] in ("", "lean"):
                low, median, high = (f"{float(row[f'processor{end}']):.2f}" for end in ("_low", "", "_high"))
                found.setdefault(row["model"], f"{median} ({low} to {high})")
    return found


def _results(file: str, measurement: str) -> list[dict[str, str]]:
    rows = speed_tables.rows_of(f"benchmarks/results/{file}.tsv")
    return [row for row in rows if row["measurement"] == measurement and "blocks" not in row["setting"]]


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
    updates = _setting(rows[0], "warmup_updates") if rows else ""
    return f"used: {int(updates):,} updates ([{rows[0].paper}](../configs/{rows[0].config}.yaml))" if updates else ""


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
    "plain": "unchanged",
    "stream": "the scale of the stream goes into the weights, as in `fairseq-deep fold`",
    "branch": "factors of the branches go into their last maps",
    "no norm": "factors of the branches, if any, go into their last maps; norms that change nothing are added (below)",
    "shift": "as `rezero`; shifts go into the biases of the maps that read them",
}
"""Treatment of a model by the export, by the model's parts."""


def exports_table() -> str:
    """The table of methods that ``fairseq-deep export`` takes, with its treatment of each."""
    methods = [method.name for method in METHODS.values() if folds_and_exports(method)[1]]
    taken = {what: [code(name) for name in methods if exported_as(grown_model(name)) == what] for what in EXPORTED}
    refused = "refused, with every reason: CTranslate2 lacks an operation. `fairseq-deep translate` runs these models"
    rows = [(", ".join(names), EXPORTED[what]) for what, names in taken.items()]
    return table(("method", "how"), [*rows, ("all other methods; `--norm-on-top yes`", refused)])


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
    """Every published result: a table a paper, a line for each of its tables and texts."""
    papers: dict[str, list[tuple[str, str, str, str]]] = {}
    for (paper, at), rows in rows_by_table().items():
        for text in dict.fromkeys(row.config.partition("/")[0] for row in rows):
            configs: dict[str, list[PublishedRow]] = {}
            for row in rows:
                if row.config.startswith(f"{text}/"):
                    configs.setdefault(row.config, []).append(row)
            cell = " · ".join(_printed(config, alike) for config, alike in configs.items())
            papers.setdefault(paper, []).append((at, text, code(rows[0].command), cell))
    header = ("table", "text", "command", "configuration: printed")
    return "\n\n".join(f"### {paper}\n\n{table(header, lines)}" for paper, lines in papers.items())


def _printed(config: str, rows: Sequence[PublishedRow]) -> str:
    """A configuration and its printed results; each has the words of its row where there are several or overrides."""
    told = len(rows) > 1 or bool(rows[0].overrides)
    results = ", ".join(row.printed + (f" ({row.row.partition(', ')[2] or row.row})" if told else "") for row in rows)
    return f"[{config.partition('/')[2]}](../configs/{config}.yaml): {results}"


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


def depth_pages() -> dict[Path, str]:
    """The page of the study of depth, and the tables that are too long for it."""
    results, lines = ROOT / "docs" / "results", depth_tables.read()
    return {
        results / "depth.md": depth_tables.page((results / "depth.template").read_text(encoding="utf-8"), lines),
        results / "depth_cells.tsv": depth_tables.cells_tsv(lines),
        results / "depth_sweep.tsv": depth_tables.sweep_tsv(lines),
    }


def pages() -> dict[Path, str]:
    """Every page that has generated text, by its path, as it should be."""
    blocks = {
        "fairseq": ("patches", patches_table()),
        "reproduction": ("published", published()),
        "choosing": ("choosing", choosing_table()),
        "learning_rates": ("rates", depth_tables.rates_table(depth_tables.read())),
        "translating": ("exports", exports_table()),
    }
    files = {ROOT / "docs" / f"{page}.md": block for page, block in blocks.items()}
    written = {file: with_block(file.read_text(encoding="utf-8"), *block) for file, block in files.items()}
    speed = ROOT / "docs" / "training_speed.md"
    timed = with_block(speed.read_text(encoding="utf-8"), "launches", speed_tables.launches())
    timed = with_block(timed, "kernels", kernels_table())
    written[speed] = with_block(timed, "GPU", speed_tables.on_gpu())
    return {ROOT / "docs" / "methods.md": methods_page(), **written, **depth_pages()}


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
