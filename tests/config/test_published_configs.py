"""The published results: their table, and their YAML files, complete and as large as printed."""

import copy
import csv
import os
import re
import sys
from collections import Counter
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from fairseq.models import build_model
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from fairseq_plugins.core.method import Axis
from fairseq_plugins.tools.pipeline.published import FILE, ROWS, WITHOUT_NUMBER, PublishedRow, rows_by_table, rows_of
from tests.config.published import CONFIGS, NAMES, completed, completed_file, composed, content
from tests.models import dictionary
from tests.models import task as translation_task

sys.path.insert(0, str(CONFIGS))  # `python configs/generate.py` puts it first, too
generate = import_module("configs.generate")


def model_of(config: DictConfig, source: int = 50, target: int = 50) -> torch.nn.Module:
    """The model, without memory; ``source`` and ``target`` are the sizes of the dictionaries."""
    task: Any = translation_task(source, target)
    if config.task._name != "translation":
        names = ("source_dictionary", "target_dictionary", "dictionary", "output_dictionary")
        task = SimpleNamespace(**dict.fromkeys(names, dictionary(target)))
    with torch.device("meta"):
        return build_model(copy.deepcopy(config.model), task)


def test_the_files_are_what_the_generator_writes(tmp_path, monkeypatch, capsys):
    assert (generate.main(["--check"]), capsys.readouterr().err) == (0, "")
    assert set(NAMES) <= set(generate.CONFIGS)
    monkeypatch.setattr(generate, "HERE", tmp_path)
    monkeypatch.setattr(generate, "CONFIGS", {name: generate.CONFIGS[name] for name in NAMES[:2]})
    assert [generate.main(["--check"]), generate.main([]), generate.main(["--check"])] == [1, 0, 0]
    (tmp_path / f"{NAMES[1]}.yaml").write_text("common: {}\n", encoding="utf-8")
    assert generate.main(["--check"]) == 1


def test_a_number_is_read_back_as_a_number() -> None:
    """PyYAML writes 1e-07, and reads it as text."""
    for value in (1e-7, 1e-9, 3.5e-05, 0.0007, 16000, 1.0, [1e-7, 0.5], "0.1", "0.1,0.1", "(0.9, 0.98)", True, "none"):
        assert yaml.safe_load(f"key: {generate._scalar(value)}") == {"key": value}


def layers_of(model: dict[str, Any]) -> list[int]:
    """Depths of the stacks that there are."""
    return [model[key] for key in ("encoder_layers", "decoder_layers") if key in model]


def depth(name: str) -> int:
    """The number of layers of both stacks."""
    return sum(layers_of(content(name)["model"]))


FAST = list({content(name)["model"]["_name"]: name for name in sorted(NAMES, key=depth, reverse=True)}.values())
"""For each architecture the file of the smallest model."""


@pytest.mark.parametrize(
    "names", [FAST, pytest.param([name for name in NAMES if name not in FAST], marks=pytest.mark.slow)], ids=len
)
def test_a_file_is_a_configuration_of_a_model_that_can_be_built(names: list[str]) -> None:
    """With three layers at most, which have all that more have; those of the tables below are built as they are."""
    wrong = []
    for name in names:
        config = OmegaConf.create(completed_file(name))
        if name.startswith("wikitext103"):
            continue
        layers = {key: min(3, config.model[key]) for key in ("encoder_layers", "decoder_layers") if key in config.model}
        config.model = OmegaConf.merge(config.model, layers)
        model = model_of(config)
        depths = [len(getattr(model, stack).layers) for stack in ("encoder", "decoder") if hasattr(model, stack)]
        wrong += [f"{name}: {depths} layers"] if depths != list(layers.values()) else []
    assert wrong == []


def test_every_file_says_all_that_a_published_training_needs() -> None:
    wrong = []
    for name in NAMES:
        values = content(name)
        model, common, recipe = values["model"], values["common"], generate.CONFIGS[name].recipe
        depths = [int(number) for number in re.findall(r"(\d+)[ed]", name.partition("/")[2])]
        scripts = [word for word in recipe.data.split() if word.startswith("scripts/")]
        mistakes = {
            "another checksum than its settings have": any(row.edited for row in rows_of(name)),
            "no choice for each axis": any(model.get(axis.value) is None for axis in Axis),
            "other depths than in its name": depths != layers_of(model),
            "data of somebody": values["task"]["data"] != "???",
            "a precision of another processor": bool({"bf16", "amp", "cpu"} & set(common)),
            "common.fp16 is no choice": common.get("fp16") not in (None, True),
            # The generator refuses other tokens. GPUs without a batch are those of other batches than the file's.
            "other GPUs": {row.gpus for row in rows_of(name) if row.tokens_per_update} - {None, recipe.gpus} != set(),
            "no preparation": not scripts and "fairseq-deep prepare" not in recipe.data,
            "a preparation that there is not": not all((CONFIGS.parent / script).is_file() for script in scripts),
        }
        wrong += [f"{name}: {mistake}" for mistake, made in mistakes.items() if made]
    assert wrong == []


def test_the_gpus_of_a_machine_do_not_multiply_a_batch() -> None:
    """fairseq starts a process for each visible GPU unless a file states their number: that of its update_freq."""
    files = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in CONFIGS.glob("*/*.yaml")}
    stated = {path: values.get("distributed_training", {}) for path, values in files.items()}
    assert [path for path, group in stated.items() if group.get("distributed_world_size") != 1] == []


def test_what_is_averaged_is_kept() -> None:
    wrong = []
    for row in ROWS:
        checkpoint, (kind, _, number) = content(row.config)["checkpoint"], row.average.partition("=")
        kept = {
            "last-epochs": str(checkpoint.get("keep_last_epochs")) == number,
            "last-updates": str(checkpoint.get("keep_interval_updates")) == number
            and checkpoint.get("save_interval_updates", 0) > 0,
            "none": True,
        }
        wrong += [] if kept.get(kind, False) else [f"{row.config}, row {row.row}: {row.average} of {checkpoint}"]
    assert wrong == []


DS_INIT_WORDS = 27511
"""DS-Init's two dictionaries have 55,022 words together."""
MILLIONS = yaml.safe_load(Path(__file__).with_name("printed_sizes.yaml").read_text(encoding="utf-8"))
"""Words of a dictionary and the number of parameters that a paper prints, by file."""


def test_a_model_is_as_large_as_printed() -> None:
    wrong = {}
    for name, (words, millions) in MILLIONS.items():
        model = model_of(completed_file(name), words, words)
        size = sum(parameter.numel() for parameter in model.parameters())
        if words == DS_INIT_WORDS:  # its toolkit has as many numbers more as the models are wide
            size += 1024 if name.endswith("_big") else 512
        digits = len(str(millions).partition(".")[2])
        if round(size / 1e6, digits) != millions:
            wrong[name] = size
    assert wrong == {}


@pytest.mark.parametrize("method", ["post_ln", "pre_ln", "admin"])
def test_the_sweep_is_the_grid_of_the_figure(method: str) -> None:
    name = f"iwslt14_de_en/{method}_6e6d_no_warmup"
    params = content(name)["hydra"]["sweeper"]["params"]
    parsed = [OverridesParser.create().parse_override(f"{key}={values}") for key, values in params.items()]
    swept = [{str(value).replace(", ", ",") for value in override.sweep_string_iterator()} for override in parsed]
    printed = [[override.partition("=") for override in row.overrides] for row in rows_of(name)]
    assert swept == [{row[index][2] for row in printed} for index in (0, 1)]
    assert list(params) == [key for key, _, _ in printed[0]]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_overrides_change_what_they_name(every: bool) -> None:
    """Through Hydra, in one row for each set of keys; in the slow tests, for each set of keys and corpus."""
    rows = {}
    for row in sorted(ROWS, key=lambda row: depth(row.config)):
        keys = tuple(override.partition("=")[0] for override in row.overrides)
        rows.setdefault((keys, row.config.partition("/")[0] if every else ""), row)
    assert len(rows) > 5
    wrong = []
    for (keys, _), row in rows.items():
        before = completed_file(row.config)
        read = composed(CONFIGS / f"{row.config}.yaml", *(f"++{override}" for override in row.overrides))
        after = completed(OmegaConf.to_container(read))
        said = [OverridesParser.create().parse_override(override).value() for override in row.overrides]
        wrong += [row] if [OmegaConf.select(after, key) for key in keys] != said else []
        wrong += [row] if (before == after) != (not keys) else []
        if after.model != before.model:  # else it is built above
            model_of(after)
    assert wrong == []


SCORERS = {
    "BLEU": ("tokenised", "compound-split", "compound-split-t2t", "sacreBLEU"),
    "bits per byte": ("eval-lm",),
    "updates to 1.2 bits per byte": ("eval-lm",),
    "chrF": ("sacreBLEU",),
    "perplexity": ("eval-lm", "validate"),
    "negative log-likelihood": ("valid loss",),
    "lowest negative log-likelihood": ("valid loss",),
    "ROUGE-1 ROUGE-2 ROUGE-L": ("ROUGE",),
    "WER": ("WER",),
}
NUMBER = r"\d+(\.\d+)?"
WHOLE_OR_NOTHING = r"([1-9]\d*)?"
PATTERNS = {
    "table": r"\S.*",
    "row": r"\S.*",
    "config": r"[a-z0-9_]+/[a-z0-9_]+",
    "overrides": r"(\+?[a-z_]+\.[a-z_0-9]+=\S+( |$))*",
    "seeds": r"\d+( \d+)*",
    "tokens_per_update": WHOLE_OR_NOTHING,
    "gpus": WHOLE_OR_NOTHING,
    "gpu_days": rf"({NUMBER})?",
    "average": r"none|(last-epochs|last-updates|best)=[1-9]\d*",
    "test": r"\S+( \S+)*",
    "printed": rf"{'|'.join(WITHOUT_NUMBER)}|{NUMBER}(±{NUMBER})?|{NUMBER}( {NUMBER})+( mean {NUMBER})?",
    "run_here": r"\S.*",
}
"""The form of a column's cells."""


def test_every_cell_is_what_its_column_says() -> None:
    with FILE.open(encoding="utf-8", newline="") as stream:
        header, *lines = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    assert tuple(header) == tuple(field.name for field in fields(PublishedRow))
    assert {len(cells) for cells in lines} == {len(header)}
    offenders = [
        (number, name, cell)
        for number, cells in enumerate(lines, start=2)
        for name, cell in zip(header, cells, strict=True)
        if cell != cell.strip() or not re.fullmatch(PATTERNS.get(name, ".*"), cell)
    ]
    assert offenders == []
    assert {row.paper for row in ROWS} == {"Admin", "admin-torch", "DS-Init", "ReZero", "B2T"}
    assert [row for row in ROWS if row.scorer not in SCORERS[row.metric]] == []
    identities = Counter((row.paper, row.table, row.row, row.scorer) for row in ROWS)
    assert [identity for identity, count in identities.items() if count > 1] == []
    assert {row.config for row in ROWS} == set(NAMES)


def test_a_row_is_read_as_it_stands() -> None:
    row = next(row for row in ROWS if row.config == "iwslt14_de_en/admin_6e6d")
    assert (row.paper, row.table, row.row) == ("Admin", "Table 2", "IWSLT'14 De-En 6L-6L small, Admin")
    assert (row.overrides, row.seeds) == ((), (1111, 2222, 3333, 4444, 5555))
    assert (row.tokens_per_update, row.gpus, row.gpu_days, row.average) == (4096, 1, None, "last-epochs=10")
    assert (row.test, row.metric, row.scorer) == (("test",), "BLEU", "tokenised")
    assert (row.printed, row.failed, row.run_here) == ("35.67±0.15", False, "not run")
    grid = next(row for row in ROWS if row.table == "Figure 10" and row.paper == "Admin")
    assert grid.overrides == ("optimization.lr=[0.0001]", "optimizer.adam_betas='(0.9,0.999)'")
    assert [row.printed for row in rows_of("wmt14_en_de/dsinit_matt_12e12d")][:4] == ["28.55", "27.9", "27.89", "fail"]
    assert rows_of("wmt14_en_de/no_such") == ()


def test_how_trainings_ended() -> None:
    """It is all that Table 1 of the Admin paper prints. Figure 10 has five rates, three beta2 and three methods."""
    ends = {row.config.rpartition("/")[2]: (row.printed, row.failed) for row in rows_by_table()["Admin", "Table 1"]}
    failed = dict.fromkeys(("post_ln_18e18d", "hybrid_ln_18e18d"), ("fail", True))
    assert ends == {**failed, "pre_ln_18e18d": ("converged", False)}
    grid = rows_by_table()["Admin", "Figure 10"]
    assert len({(row.config, row.overrides) for row in grid}) == len(grid) == 45
    assert len({row.overrides for row in grid}) == 15
    assert [row.config for row in grid if row.failed] == ["iwslt14_de_en/post_ln_6e6d_no_warmup"] * 7


def test_as_many_numbers_as_test_sets_or_names_in_the_metric_and_their_mean() -> None:
    """One number may also be the mean over the sets. The B2T paper prints the mean of the years next to them."""
    means = 0
    for row in ROWS:
        parts = row.metric.split() if row.metric.startswith("ROUGE") else row.test
        numbers = row.printed.partition(" mean ")[0].split()
        assert len(numbers) in (1, len(parts)), row
        assert not row.metric.startswith("ROUGE") or row.printed in WITHOUT_NUMBER or len(numbers) == 3
        if " mean " in row.printed:
            means += 1
            assert len(numbers) == len(row.test) == 7
            assert float(row.summary) == pytest.approx(fmean(map(float, numbers)), abs=0.005 + 1e-9)
    assert means == 15 + 2 + 3 + 1  # Tables 1, 2 and 8, and the README


def test_every_table_has_its_script_and_every_script_its_table() -> None:
    tables, scripts = rows_by_table(), {path.name for path in (CONFIGS.parent / "scripts/reproduce").glob("*.sh")}
    assert {name for name in scripts if not name.startswith(("multi30k", "tatoeba"))} == {row.script for row in ROWS}
    assert sum(map(len, tables.values())) == len(ROWS)
    for (paper, _), rows in tables.items():
        (command,) = {row.command for row in rows}
        script = CONFIGS.parent / command.rpartition(" ")[2]
        assert os.access(script, os.X_OK), script
        assert paper in script.read_text(encoding="utf-8")
    assert tables["ReZero", "Table 3"][0].command == "TABLE=3 scripts/reproduce/rezero_enwik8.sh"
