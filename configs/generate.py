"""Write the YAML files of the published results: ``python configs/generate.py``, or ``--check`` to only compare.

fairseq cannot chain whole configurations by ``defaults:`` (values get lost on the way), and recipes that are copied by
hand drift apart. So each recipe stands once, in the file of its paper in ``recipes/``, with the models that it trains;
the comments take the printed results from ``fairseq_plugins/tools/pipeline/published.tsv``. The files of three layers
in ``multi30k_de_en`` are written by hand.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import fairseq_plugins  # noqa: F401  (registers the methods)
from fairseq_plugins.core.architectures import method_preset
from fairseq_plugins.core.method import METHODS, Axis
from fairseq_plugins.files import write_whole
from fairseq_plugins.tools.pipeline.published import WITHOUT_NUMBER, PublishedRow, checksum_of_settings, rows_of
from recipes import admin, b2t, dsinit, multi30k, rezero, tatoeba
from recipes.common import Config, Noted, merged, plain

HERE = Path(__file__).resolve().parent
GROUPS = (
    "common",
    "distributed_training",
    "task",
    "model",
    "criterion",
    "optimizer",
    "lr_scheduler",
    "dataset",
    "optimization",
    "checkpoint",
    "generation",
    "eval_lm",
    "scoring",
)
"""The groups of a file in their order, after what is said of the sweep."""
RECIPES = (admin, dsinit, rezero, b2t, multi30k, tatoeba)
CONFIGS: dict[str, Config] = dict(one for recipe in RECIPES for one in recipe.configs())
"""All configurations by their path below this directory, without ``.yaml``."""


def model_group(config: Config) -> dict[str, Any]:
    """The group ``model``: name, axes, depths, sizes, options."""
    method = METHODS.get(config.method)
    group: dict[str, Any] = {"_name": (method.name if method else "deep") + config.family}
    preset = method_preset(method) if method else {**method_preset(None), "attention": config.method}
    group.update({axis.value: preset[axis.value] for axis in Axis})
    if config.recipe.base_init and preset["base_init"] == "fairseq":
        group["base_init"] = config.recipe.base_init
    if config.encoder:
        group["encoder_layers"] = config.encoder
    group["decoder_layers"] = config.decoder
    return {**group, **config.recipe.model, **config.model}


def groups(config: Config, name: str) -> dict[str, dict[str, Any]]:
    """All groups of the file ``name``, which trains in a directory of its own."""
    update_freq = {"optimization": {"update_freq": [max(1, config.recipe.gpus) * config.recipe.update_freq]}}
    # fairseq's default is the number of visible GPUs, by which a machine would multiply the batch.
    own = {"checkpoint": {"save_dir": f"checkpoints/{name}"}, "distributed_training": {"distributed_world_size": 1}}
    every = merged(own, config.recipe.settings, update_freq, {"model": model_group(config)}, config.settings)
    return {name: every[name] for name in GROUPS if name in every}


def tokens(config: Config) -> tuple[str, int]:
    """The arithmetic of an update in words, and its result."""
    recipe = config.recipe
    batch = plain(recipe.settings["dataset"]["max_tokens"])
    gpus = f"{recipe.gpus} GPU{'s'[recipe.gpus == 1 :]} x " if recipe.gpus else ""
    words = f"{gpus}max_tokens {batch:,} x update_freq {recipe.update_freq}"
    return words, max(1, recipe.gpus) * batch * recipe.update_freq


def heading(name: str, config: Config) -> list[str]:
    """The comment at the head of a file."""
    corpus, _, file = name.partition("/")
    rows = rows_of(name)
    shown = () if config.sweep else rows[:4]
    depth = f"{config.decoder} layers"
    if config.encoder:
        depth = f"{config.encoder} encoder and {config.decoder} decoder layers"
    title = title_of(config.method)
    factors, product = tokens(config)
    lines = [f"{title}, {depth}. {config.recipe.corpus}.", *map(result_line, shown)]
    if config.sweep:
        lines.append(
            f"{rows[0].paper}, {rows[0].table}: {len(rows)} results, in fairseq_plugins/tools/pipeline/published.tsv."
        )
    elif len(rows) > len(shown):
        lines.append(f"{len(rows) - len(shown)} more in fairseq_plugins/tools/pipeline/published.tsv.")
    lines += [
        f"Recipe: {config.recipe.source}.",
        f"Data: {config.recipe.data}; DIR below is the full path of the data-bin that it makes.",
        "",
    ]
    flag = " -m" if config.sweep else ""
    lines += [
        f"  fairseq-deep hydra-train{flag} --config-dir configs/{corpus} --config-name {file} task.data=DIR",
        "",
        f"An update has at most {factors} = {product:,} tokens{_paper_figure(config, rows, product)}.",
        _update_freq_line(config),
        *config.recipe.remarks,
        *config.remarks,
    ]
    return [part for line in lines for part in _comment(line)]


def title_of(method: str) -> str:
    """How the papers call it; an attention that is no method by itself is Post-LN's, where DS-Init's is a method."""
    if method in METHODS:
        return METHODS[method].title
    return f"{METHODS[f'dsinit_{method}'].title.removeprefix('DS-Init + ')}, without DS-Init"


def _comment(line: str) -> list[str]:
    """A line as comments of at most 120 characters; a command stays whole."""
    if not line or line.startswith(" "):
        return [f"# {line}".rstrip()]
    return textwrap.wrap(line, 120, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)


def result_line(row: PublishedRow) -> str:
    """One published result."""
    overrides = f" with {' '.join(row.overrides)}" if row.overrides else ""
    metric = f" {row.metric} ({row.scorer})" if row.metric == "BLEU" else f" {row.metric}"
    metric = "" if row.printed in WITHOUT_NUMBER else metric
    return f"{row.paper}, {row.table}, {row.row}{overrides}: {row.printed}{metric}."


def _paper_figure(config: Config, rows: Sequence[PublishedRow], product: int) -> str:
    """The comment with the paper's own number, next to our arithmetic."""
    if not rows:
        return ""
    said = {row.tokens_per_update for row in rows if not row.overrides} or {row.tokens_per_update for row in rows}
    if said == {None}:
        return "; the paper's figure is not stated"
    if said != {product}:
        raise SystemExit(f"error: {config}: {product} tokens an update, and {said} in published.tsv")
    return ", as in the paper"


def _update_freq_line(config: Config) -> str:
    gpus, update_freq = config.recipe.gpus, config.recipe.update_freq
    product = f"{gpus} x {update_freq}" if gpus else f"{update_freq}, the number of GPUs is not stated"
    return (
        f"update_freq below is for one process ({product}), and the command starts one; fairseq-deep run has all GPUs "
        "share its batches."
    )


def text_of(name: str) -> str:
    """The file of that name."""
    config = CONFIGS[name]
    lines = []
    if config.sweep:
        lines += ["hydra:", "  sweeper:", "    params:"]
        lines += [f"      {key}: {_scalar(values)}" for key, values in config.sweep.items()]
    for group, values in groups(config, name).items():
        lines.append(f"{group}:")
        lines += [f"  {key}: {_written(value)}" for key, value in values.items()]
    settings = "".join(f"{line}\n" for line in lines)
    # The report shows a printed result only beside runs of a file that nobody has edited.
    last = f"Written by configs/generate.py, change it there; checksum: {checksum_of_settings(settings)}."
    return "".join(f"{line}\n" for line in (*heading(name, config), *_comment(last))) + settings


def _written(value: Any) -> str:
    comment = f"  # {value.comment}" if isinstance(value, Noted) else ""
    return _scalar(plain(value)) + comment


def _scalar(value: Any) -> str:
    """A value as YAML reads it back: PyYAML takes 1e-07 for text, so that a number gets its point."""
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")
    return yaml.safe_dump(value, default_flow_style=True, width=1000).partition("\n")[0]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args(argv).check
    stale = []
    for name in CONFIGS:
        path = HERE / f"{name}.yaml"
        if not path.exists() or path.read_text(encoding="utf-8") != text_of(name):
            stale.append(name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                write_whole(path, text_of(name))
    for name in stale:
        if check:
            print(f"error: configs/{name}.yaml is out of date: run `python configs/generate.py`", file=sys.stderr)
        else:
            print(f"configs/{name}.yaml: written")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
