"""The published results that this package sets out to reproduce: one row of ``published.tsv`` for each printed result.

A row has the configuration below ``configs/``, the average, the test sets, the printed score and its scorer, and what
was run here. The YAML files, docs/reproduction.md, the evaluation and the reports read it. Published numbers are
nowhere else.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, nearest

FILE = Path(__file__).with_name("published.tsv")
SCORERS: Mapping[str, tuple[str, ...]] = {
    "BLEU": ("tokenised", "compound-split", "compound-split-t2t", "sacreBLEU"),
    "bits per byte": ("eval-lm",),
    "updates to 1.2 bits per byte": ("eval-lm",),
    "chrF": ("sacreBLEU",),
    "perplexity": ("eval-lm", "validate"),
    "negative log-likelihood": ("valid loss",),
    "ROUGE-1 ROUGE-2 ROUGE-L": ("ROUGE",),
    "WER": ("WER",),
}
"""The scorers of each metric; ``tokenised`` is the BLEU that ``fairseq-generate`` and ``multi-bleu.perl`` print, and
``validate`` is fairseq's command of that name."""
PAPERS = ("Admin", "admin-torch", "DS-Init", "ReZero", "B2T")
FAIL, CONVERGED, CURVE = "fail", "converged", "curve"
WITHOUT_NUMBER = (FAIL, CONVERGED, CURVE)
NOT_RUN = "not run"
_NUMBER = r"\d+(\.\d+)?"
_PRINTED = re.compile(rf"{'|'.join(WITHOUT_NUMBER)}|{_NUMBER}(±{_NUMBER})?|{_NUMBER}( {_NUMBER})+( mean {_NUMBER})?")
_AVERAGE = re.compile(r"none|(last-epochs|last-updates|best)=[1-9]\d*")
_CONFIG = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")
_OVERRIDE = re.compile(r"\+?[a-z_]+\.[a-z_0-9]+=\S+")


@dataclass(frozen=True)
class PublishedRow:
    """One printed result.

    Attributes:
        paper: one of :data:`PAPERS`.
        table: where it is printed, for instance ``Table 2``, ``Figure 10`` or ``README``.
        row: the row of the table, and its column where the table has several.
        config: the YAML file below ``configs/``, without ``.yaml``.
        overrides: Hydra overrides of it.
        seeds: those of the paper; one training each.
        tokens_per_update: maximum over all GPUs; None if the paper does not state it.
        gpus: of the paper; None if it does not state them.
        gpu_days: the paper's GPUs times its days; None if it does not state them, and for a training that failed.
        average: checkpoints to average: ``last-epochs=N``, ``last-updates=N``, ``best=N`` or ``none``.
        test: names of the test sets. One number for several sets is their mean; otherwise there is a number for each,
            and after ``mean`` their printed mean.
        metric: one of the keys of :data:`SCORERS`.
        scorer: one of its values.
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
    def failed(self) -> bool:
        """Whether the paper reports that the training failed."""
        return self.printed == FAIL

    @property
    def has_number(self) -> bool:
        """Whether the paper prints a number for it."""
        return self.printed not in WITHOUT_NUMBER

    @property
    def summary(self) -> str:
        """The printed result, in short: only the mean if there are several numbers and their mean."""
        return self.printed.rpartition(" mean ")[2]

    @property
    def was_run(self) -> bool:
        """Whether this package has run it."""
        return self.run_here != NOT_RUN

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


COLUMNS = tuple(field.name for field in fields(PublishedRow))


def read(file: Path) -> tuple[PublishedRow, ...]:
    """The rows of a file like ``published.tsv``.

    Raises:
        UserError: every problem of the file, all reported together with their lines.
    """
    with file.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    if not lines or tuple(lines[0]) != COLUMNS:
        raise UserError(f"{file}: line 1: the columns must be {', '.join(COLUMNS)}")
    rows: list[PublishedRow] = []
    problems: list[str] = []
    for number, cells in enumerate(lines[1:], start=2):
        try:
            rows.append(_row(cells))
        except UserError as error:
            problems += [f"{file}: line {number}: {problem}" for problem in error.problems]
    problems += [f"{file}: twice the same row: {' / '.join(identity)}" for identity in _twice(rows)]
    if problems:
        raise UserError(problems)
    return tuple(rows)


def _twice(rows: Iterable[PublishedRow]) -> list[tuple[str, ...]]:
    times = Counter((row.paper, row.table, row.row, row.scorer) for row in rows)
    return [identity for identity, count in times.items() if count > 1]


def _row(cells: Sequence[str]) -> PublishedRow:
    if len(cells) != len(COLUMNS):
        raise UserError(f"{len(cells)} cells instead of {len(COLUMNS)}")
    texts = dict(zip(COLUMNS, cells, strict=True))
    problems = [f"{name} begins or ends with a space" for name, text in texts.items() if text != text.strip()]
    problems += [f"{name} is empty" for name in ("table", "row", "test", "run_here") if not texts[name].strip()]
    problems += [f"{name} '{texts[name]}': {why}" for name, (legal, why) in _CHECKS.items() if not legal(texts[name])]
    problems += _wrong_name("paper", texts["paper"], PAPERS) + _wrong_name("metric", texts["metric"], tuple(SCORERS))
    problems += _wrong_name("scorer", texts["scorer"], SCORERS.get(texts["metric"], (texts["scorer"],)))
    if problems:
        raise UserError(problems)
    values: dict[str, Any] = dict(texts)
    values.update({name: convert(texts[name]) for name, convert in _CONVERTED.items()})
    return PublishedRow(**values)


def _wrong_name(kind: str, name: str, legal: Sequence[str]) -> list[str]:
    if name in legal:
        return []
    return [f"unknown {kind} '{name}'{nearest(name, legal)}; legal values: {', '.join(legal)}"]


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _number_or_nothing(text: str) -> bool:
    return not text or re.fullmatch(r"[1-9]\d*", text) is not None


_CHECKS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "config": (_matches(_CONFIG), "CORPUS/NAME is expected, as iwslt14_de_en/admin_6e6d"),
    "overrides": (lambda text: all(map(_matches(_OVERRIDE), text.split())), "GROUP.KEY=VALUE are expected"),
    "seeds": (lambda text: bool(text) and all(one.isdecimal() for one in text.split()), "whole numbers are expected"),
    "tokens_per_update": (_number_or_nothing, "a whole number of at least 1, or nothing, is expected"),
    "gpus": (_number_or_nothing, "a whole number of at least 1, or nothing, is expected"),
    "gpu_days": (_matches(re.compile(r"(\d+(\.\d+)?)?")), "a number, or nothing, is expected"),
    "average": (_matches(_AVERAGE), "last-epochs=N, last-updates=N, best=N or none is expected"),
    "printed": (
        _matches(_PRINTED),
        "a number, MEAN±DEVIATION, several numbers, perhaps with mean NUMBER, fail, converged or curve is expected",
    ),
}


def _whole(text: str) -> int | None:
    return int(text) if text else None


_CONVERTED: Mapping[str, Callable[[str], object]] = {
    "overrides": lambda text: tuple(text.split()),
    "seeds": lambda text: tuple(map(int, text.split())),
    "tokens_per_update": _whole,
    "gpus": _whole,
    "gpu_days": lambda text: float(text) if text else None,
    "test": lambda text: tuple(text.split()),
}

ROWS: tuple[PublishedRow, ...] = read(FILE)


def rows_of(config: str) -> tuple[PublishedRow, ...]:
    """The rows of a configuration below ``configs/`` (named without ``.yaml``); empty if there are none."""
    return tuple(row for row in ROWS if row.config == config)


def rows_by_table() -> dict[tuple[str, str], list[PublishedRow]]:
    """The rows by paper and table, in the order of the file."""
    tables: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in ROWS:
        tables.setdefault((row.paper, row.table), []).append(row)
    return tables
