"""The published results that this package sets out to reproduce: one row of ``published.tsv`` for each printed result.

A row has the configuration below ``configs/``, the average, the test sets, the printed score and its scorer, and what
was run here. The YAML files, docs/reproduction.md, the evaluation and the reports read it. Published numbers are
nowhere else. ``tests/config/test_published_configs.py`` checks the file.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.recorder.entries import SUFFIX
from fairseq_plugins.tools.pipeline.checkout import CONFIGS

if TYPE_CHECKING:
    from fairseq_plugins.tools.pipeline.results import Run

FILE = Path(__file__).with_name("published.tsv")
FAIL, CONVERGED, CURVE = "fail", "converged", "curve"
WITHOUT_NUMBER = (FAIL, CONVERGED, CURVE)
APART = (
    *("task.data", "task.seed", "checkpoint.save_dir", "common.seed", "common.cpu", "hydra.sweeper"),
    *("common.fp16", "common.memory_efficient_fp16", "optimization.max_update"),
    *("dataset.max_tokens", "optimization.update_freq", "distributed_training.distributed_world_size"),
)
"""Settings that say where a training runs, and those that are compared by the training's own record."""
WITHOUT_EFFECT = re.compile(
    r"(common\.(no_progress_bar|(log|aim)_\w+|tensorboard_logdir|wandb_project|azureml_logging|user_dir|empty_cache_freq)"
    r"|dataset\.(num_workers|data_buffer_size|validate_interval_updates)|checkpoint\.(keep|no)_\w+|task\.eval_bleu\w*"
    r"|model\.(checkpoint|offload)_activations|distributed_training\.(distributed_\w+|nprocs_per_node|device_id)"
    r"|criterion\.(diagnostics_interval|divergence_(band|patience|plateau)))=|criterion\.divergence_action=stop"
)
"""Settings that change no loss: logs, kept files, recordings, memory and workers, a guard that only ends."""


@dataclass(frozen=True)
class PublishedRow:
    """One printed result.

    Attributes:
        paper: for instance ``Admin``.
        table: where it is printed, for instance ``Table 2``, ``Figure 10`` or ``README``.
        row: the row of the table, and its column where the table has several.
        config: the YAML file below ``configs/``, without ``.yaml``.
        overrides: Hydra overrides of it.
        seeds: seeds of the paper; one training each.
        tokens_per_update: maximum over all GPUs; None if the paper does not state it.
        gpus: of the paper; None if it does not state them.
        gpu_days: the paper's GPUs times its days; None if it does not state them, and for a training that failed.
        average: checkpoints to average: ``last-epochs=N``, ``last-updates=N`` or ``none``.
        test: names of the test sets. One number for several sets is their mean; otherwise there is a number for each,
            and after ``mean`` their printed mean.
        metric: for instance ``BLEU`` or ``perplexity``.
        scorer: ``tokenised`` is the BLEU that ``fairseq-generate`` and ``multi-bleu.perl`` print, and ``validate`` is
            fairseq's command of that name.
        printed: the paper's result: a number, ``mean±deviation`` over the seeds, or several numbers; without a number
            ``fail``, ``converged``, or ``curve`` for a figure.
        run_here: the run of this package and its result, or ``not run``.
        note: anything else that a reader must know.
    """

    paper: str
    table: str
    row: str
    config: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    tokens_per_update: int | None
    gpus: int | None
    gpu_days: float | None
    average: str
    test: tuple[str, ...]
    metric: str
    scorer: str
    printed: str
    run_here: str
    note: str

    @property
    def corpus(self) -> str:
        """The folder of the configuration."""
        return self.config.partition("/")[0]

    @property
    def file(self) -> Path:
        """Return the path of the YAML file."""
        return CONFIGS / f"{self.config}.yaml"

    @property
    def prepared_by(self) -> str:
        """The call of the script that prepares its text, such as ``VARIANT=admin scripts/prepare_wmt14_en_de.sh``."""
        return "".join(re.findall(r"^# Data: (.*?);", self.file.read_text(encoding="utf-8"), re.MULTILINE))

    @property
    def penalties(self) -> dict[str, float]:
        """The test sets with another length penalty than ``generation.lenpen``, as a comment of the YAML file says."""
        pairs = re.findall(r"lenpen: .*# ([\d.]+) for (\w+):", self.file.read_text(encoding="utf-8"))
        return {name: float(value) for value, name in pairs}

    @property
    def edited(self) -> bool:
        """Whether the file has other settings than ``configs/generate.py`` wrote."""
        text = self.file.read_text(encoding="utf-8")
        return f" {checksum_of_settings(text)}." not in text

    @property
    def failed(self) -> bool:
        """Whether the paper reports that the training failed."""
        return self.printed == FAIL

    @property
    def summary(self) -> str:
        """The printed result, in short: only the mean if there are several numbers and their mean."""
        return self.printed.rpartition(" mean ")[2]

    @property
    def script(self) -> str:
        """Name of the script in ``scripts/reproduce/`` that runs the table."""
        if self.paper == "ReZero":
            return "rezero_enwik8.sh"
        paper = self.paper.lower().replace("-", "" if self.paper == "DS-Init" else "_")
        return f"{paper}_{self.table.lower().replace(' ', '')}.sh"

    @property
    def command(self) -> str:
        """The command that runs the table, from the root of the repository."""
        table = f"TABLE={self.table.rpartition(' ')[2]} " if self.paper == "ReZero" else ""
        return f"{table}scripts/reproduce/{self.script}"


def checksum_of_settings(text: str) -> str:
    """12 digits of the SHA-256 of a YAML file without its comment lines."""
    settings = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


_READ: dict[str, Callable[[str], Any]] = {
    "overrides": lambda text: tuple(text.split()),
    "seeds": lambda text: tuple(map(int, text.split())),
    "tokens_per_update": lambda text: int(text) if text else None,
    "gpus": lambda text: int(text) if text else None,
    "gpu_days": lambda text: float(text) if text else None,
    "test": lambda text: tuple(text.split()),
}
"""How the cells of a column are read; others are text."""
with FILE.open(encoding="utf-8", newline="") as _lines:
    ROWS = tuple(
        PublishedRow(**{name: _READ.get(name, str)(text) for name, text in cells.items()})
        for cells in csv.DictReader(_lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    )


def rows_of(config: str) -> tuple[PublishedRow, ...]:
    """The rows of a configuration below ``configs/`` (named without ``.yaml``); empty if there are none."""
    return tuple(row for row in ROWS if row.config == config)


def rows_by_table() -> dict[tuple[str, str], list[PublishedRow]]:
    """The rows by paper and table, in the order of the file."""
    tables: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in ROWS:
        tables.setdefault((row.paper, row.table), []).append(row)
    return tables


def published_rows(run: Run) -> list[PublishedRow]:
    """The published rows of a run's configuration whose overrides match most of its changes."""
    changes = {change.lstrip("+") for change in run.overrides}
    rows = [
        row for row in rows_of(run.config or "") if changes.issuperset(change.lstrip("+") for change in row.overrides)
    ]
    most = max((len(row.overrides) for row in rows), default=0)
    return [row for row in rows if len(row.overrides) == most]


def published_average(rows: Sequence[PublishedRow]) -> str:
    """The checkpoints that the rows of a configuration average; empty without a row, a UserError if they disagree."""
    averages = sorted({row.average for row in rows})
    if len(averages) > 1:
        raise UserError(f"{rows[0].config}: published with different averages ({', '.join(averages)}); set --average")
    return "".join(averages)


class Difference(NamedTuple):
    """A difference between a run and a published recipe: in short for a table, and in full for a remark."""

    short: str
    full: str


def differences(runs: Sequence[Run], row: PublishedRow) -> tuple[Difference, ...]:
    """Differences between the runs of one recipe and a row; its number is comparable if there is none."""
    differing = dict.fromkeys(difference for run in runs for difference in _differences(run, row))
    if row.edited:
        differing[Difference("file edited", f"configs/{row.config}.yaml was edited")] = None
    seeds = {run.seed for run in runs}
    if not seeds.issuperset(row.seeds):
        own, papers = (" ".join(sorted(map(str, numbers))) for numbers in (seeds, row.seeds))
        count = len(seeds.intersection(row.seeds))
        differing[Difference(f"seeds {count} of {len(row.seeds)}", f"seeds {own}, not {papers}")] = None
    return tuple(differing)


def _differences(run: Run, row: PublishedRow) -> Iterator[Difference]:
    from omegaconf import OmegaConf

    groups: Any = OmegaConf.merge(
        OmegaConf.load(row.file), OmegaConf.from_dotlist([change.lstrip("+") for change in row.overrides])
    )
    groups = OmegaConf.to_container(groups)
    recipe = {f"{group}.{key}": value for group, values in groups.items() for key, value in values.items()}
    text, papers = run.settings.get("prepared_by"), row.prepared_by
    if text != papers:
        yield Difference("other text" if text else "text unknown", f"text by {text or 'an unknown call'}, not {papers}")
    changed = {change.lstrip("+").partition("=")[0] for change in run.changes}
    keys = sorted((recipe.keys() | changed).difference(APART))
    values = [(key, run.configured(*key.partition(".")[::2]), recipe.get(key)) for key in keys]
    others = [
        f"{key} {own}, not {wanted}"
        for key, own, wanted in values
        if own not in (wanted, f"{wanted}{SUFFIX}") and not WITHOUT_EFFECT.match(f"{key}={own}")
    ]
    if others:
        yield Difference(f"{len(others)} setting{'s' * (len(others) > 1)}", "; ".join(others))
    precision = "fp16" if recipe.get("common.fp16") or recipe.get("common.memory_efficient_fp16") else "fp32"
    if (own := run.settings.get("precision")) != precision:
        yield Difference(own or "precision unknown", f"precision {own}, not {precision}")
    tokens = recipe["dataset.max_tokens"] * recipe.get("optimization.update_freq", [1])[-1]
    if (own := run.settings.get("tokens_per_update")) != tokens:
        yield Difference(f"{own} tokens per update", f"{own} tokens per update, not {tokens}")
    yield from _unfinished(run, row, recipe)
    penalties = row.penalties
    for name in (name for name in row.test if name in run.evaluations):
        penalty = penalties.get(name, recipe.get("generation.lenpen"))
        search = {"average": row.average, "beam": recipe.get("generation.beam"), "lenpen": penalty}
        for key, value in search.items():
            wanted = f"{value:g}" if isinstance(value, (int, float)) else value
            if wanted is not None and (own := run.evaluations[name].decoding.get(key)) != wanted:
                yield Difference(f"{key} {own}", f"{name} uses {key}={own}, not {wanted}")


def _unfinished(run: Run, row: PublishedRow, recipe: Mapping[str, Any]) -> Iterator[Difference]:
    """The updates, or epochs without a limit of updates, of a training that has not completed the recipe."""
    finished = run.finished or {}
    made = {"update": run.updates, "epoch": finished.get("epochs", 0)}
    limits = {unit: limit for unit in made if (limit := recipe.get(f"optimization.max_{unit}"))}
    completed = finished and not finished.get("outcome") and any(made[unit] == limits[unit] for unit in limits)
    # A failure that the paper has, too, is a result.
    if not completed and not (row.failed and finished):
        unit, limit = next(iter(limits.items()))
        yield Difference(*[f"{made[unit]:,} of {limit:,} {unit}s"] * 2)
