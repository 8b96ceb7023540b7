"""``fairseq-deep report RUN ...``: one table of several trainings with scores, significance tests and papers' numbers.

RUN is a directory of ``fairseq-deep run``, or one with such directories below it. Seeds of one recipe are one row.
"""

from __future__ import annotations

import csv
import io
import logging
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import write_whole
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.pipeline import pictures
from fairseq_plugins.pipeline.comparisons import Comparisons, compared
from fairseq_plugins.pipeline.leaderboard import (
    Column,
    Group,
    Spread,
    gather,
    named_baseline,
    printed_metrics,
    remarks,
    score_columns,
    unlike,
)
from fairseq_plugins.pipeline.run import Run, find_runs, read_run
from fairseq_plugins.pipeline.verdicts import worst
from fairseq_plugins.process import exit_code
from fairseq_plugins.scoring.metrics import METRICS
from fairseq_plugins.tables import (
    ABSENT,
    markdown_table,
    number,
    strict_json,
    tabulated,
    without_empty_columns,
)

LEVEL = 0.05
"""Smaller p-values are marked."""
SENTENCES, SEEDS = "*", "†"
"""Marks of significance over the sentences, and over the seeds."""
LOWER_IS_BETTER = {metric.name for metric in METRICS.values() if not metric.higher_is_better} | {
    "perplexity",
    "bits per byte",
    "bits per token",
    "updates to 1.2 bits per byte",
}
FORMS = {"bits per byte": ".3f", "bits per token": ".3f", "updates to 1.2 bits per byte": ",.0f"}
"""Formats of scores; default: two decimals."""


@dataclass(frozen=True)
class Report:
    """The table and its notes.

    Attributes:
        groups: the rows, in the order in which they are shown.
        columns: the scores.
        comparisons: significance tests; None if there are none.
        notes: a line for everything missing, damaged or odd.
        speed: whether to show machine-dependent columns.
    """

    groups: tuple[Group, ...]
    columns: tuple[Column, ...]
    comparisons: Comparisons | None
    notes: tuple[str, ...]
    speed: bool = True

    @property
    def several_seeds(self) -> bool:
        """Whether there are means and deviations to explain."""
        return any(len(group.members) > 1 for group in self.groups)


@dataclass(frozen=True)
class Field:
    """A column of the table: its header, its cells, and its sort key (smallest first)."""

    header: str
    cell: Callable[[Group], str]
    order: Callable[[Group], Any]

    @property
    def name(self) -> str:
        """Its name for ``--sort``."""
        return self.header.lower().replace(" ", "-")


def fields(shown: Report) -> list[Field]:
    """The columns of the table, from left to right."""
    return [
        Field("method", lambda group: group.label, lambda group: group.label),
        Field("layers", lambda group: group.layers or ABSENT, _layers),
        Field("seeds", lambda group: str(len(group.members)), lambda group: len(group.members)),
        Field("parameters", lambda group: number(group.parameters, ",d"), lambda group: group.parameters),
        _of_runs("updates", lambda run: float(run.updates), ",.0f"),
        _of_runs("valid loss", lambda run: run.log.final_valid_loss, ".3f"),
        *(_score_field(column, shown.comparisons) for column in shown.columns),
        Field("paper", _paper, _paper),
        Field("verdict", _verdict, _verdict),
        *([_SPEED, _DEVICE] if shown.speed else []),
    ]


def _layers(group: Group) -> Any:
    return [int(depth) for depth in group.layers.split("-")] if group.layers else None


def _of_runs(header: str, value: Callable[[Run], float | None], form: str) -> Field:
    def order(group: Group) -> float | None:
        found = group.number(value)
        return found.mean if found else None

    return Field(header, lambda group: _shown(group.number(value), form, group), order)


def _shown(found: Spread | None, form: str, group: Group) -> str:
    """Mean and deviation; with the number of runs if some have no value."""
    if found is None:
        return ABSENT
    deviation, of_all = found.deviation, len(found.values) == len(group.members)
    text = format(found.mean, form) + (f" ± {deviation:{form}}" if deviation else "")
    return text if of_all else f"{text} ({len(found.values)} of {len(group.members)})"


def _score_field(column: Column, comparisons: Comparisons | None) -> Field:
    sign = 1 if column.metric in LOWER_IS_BETTER else -1

    def cell(group: Group) -> str:
        text = _shown(group.score(column), FORMS.get(column.metric, ".2f"), group)
        return text + _marks(group, column, comparisons)

    def order(group: Group) -> float | None:
        found = group.score(column)
        return sign * found.mean if found else None

    return Field(column.header, cell, order)


def _marks(group: Group, column: Column, comparisons: Comparisons | None) -> str:
    if comparisons is None:
        return ""
    p_values = {
        SENTENCES: comparisons.p(group.label, column, seeds=False),
        SEEDS: comparisons.p(group.label, column, seeds=True),
    }
    marks = "".join(mark for mark, p in p_values.items() if p is not None and p < LEVEL)
    return f" {marks}" if marks else ""


def _paper(group: Group) -> str:
    """The printed results; with the name of the score if there are several."""
    kinds = {row: row.scorer if row.metric == "BLEU" else row.metric for row in group.published}
    several = len(set(kinds.values())) > 1
    printed = [f"{row.summary} {kind}" if several else row.summary for row, kind in kinds.items()]
    return "; ".join(dict.fromkeys(printed)) or ABSENT


def _verdict(group: Group) -> str:
    return worst([member.verdict.outcome for member in group.members])


def _tokens_per_second(run: Run) -> float | None:
    return run.log.median_speed


def _speed(group: Group) -> float | None:
    found = group.number(_tokens_per_second)
    return statistics.median(found.values) if found else None


_SPEED = Field("tokens/s", lambda group: number(_speed(group), ",.0f"), lambda group: -(_speed(group) or 0))
_DEVICE = Field("device", lambda group: group.devices or ABSENT, lambda group: group.devices)


def rows(shown: Report) -> list[list[str]]:
    """The table's cells, header first. A column without a single entry is left out."""
    columns = fields(shown)
    header = [field.header for field in columns]
    return without_empty_columns([header, *([field.cell(group) for field in columns] for group in shown.groups)])


def sorted_groups(shown: Report, by: str) -> tuple[Group, ...]:
    """The rows by one column: best scores, lowest losses and smallest sizes first, rows without a value last.

    Raises:
        UserError: there is no such column.
    """
    legal = {field.name: field for field in fields(shown)}
    if by not in legal:
        raise UserError(unknown_name("column to --sort by", by, legal))
    order = legal[by].order
    known = [group for group in shown.groups if order(group) is not None]
    return (*sorted(known, key=order), *(group for group in shown.groups if group not in known))


# --- notes ----------------------------------------------------------------------------------------------------------


def legend(shown: Report) -> Iterator[str]:
    """Explanations of the table, one line each."""
    deviations = "±: standard deviation over the seeds (n - 1). " if shown.several_seeds else ""
    yield f"{deviations}Valid loss: negative log-likelihood in bits per target token."
    if shown.speed and any(_speed(group) for group in shown.groups):
        yield "Tokens/s: target tokens in training, median over the log's intervals and over the seeds."
    yield from _signatures(shown)
    if shown.comparisons and shown.comparisons.tests:
        yield from _tests_made(shown.comparisons)
    for group in shown.groups:
        for row in group.published:
            where = f"{row.paper}, {row.table}, {row.row}"
            yield f"{group.label}: {row.printed} {row.metric} ({row.scorer}) on {' '.join(row.test)}: {where}"


def _signatures(shown: Report) -> Iterator[str]:
    found: dict[str, None] = {}
    for column in shown.columns:
        for group in shown.groups:
            for member in group.members:
                evaluation = member.run.evaluations.get(column.test_set)
                metric = evaluation.metrics.get(column.metric) if evaluation else None
                if metric and metric.signature:
                    found[f"{metric.name}: {metric.signature}"] = None
    yield from found


def _tests_made(comparisons: Comparisons) -> Iterator[str]:
    signatures = dict.fromkeys(test.signature for _, test in comparisons.tests if test.signature)
    yield (
        f"{SENTENCES}: differs from {comparisons.baseline} with p < {LEVEL}, paired bootstrap over the sentences, the "
        f"largest p of all pairs of seeds ({'; '.join(signatures)})"
    )
    if any(not test.signature for _, test in comparisons.tests):
        yield f"{SEEDS}: differs from {comparisons.baseline} with p < {LEVEL}, Welch's t-test over the seeds"


# --- files ----------------------------------------------------------------------------------------------------------


def as_text(shown: Report) -> str:
    """For a terminal."""
    return "\n".join([tabulated(rows(shown)), "", *legend(shown), *shown.notes]) + "\n"


def as_markdown(shown: Report, *, picture: bool) -> str:
    """For a page."""
    parts = ["# Leaderboard", markdown_table(rows(shown))]
    parts.append("\n".join(f"- {line}" for line in legend(shown)))
    if shown.notes:
        parts.append("Remarks:\n\n" + "\n".join(f"- {line}" for line in shown.notes))
    if picture:
        parts.append("![Loss against updates, and scores](report.png)")
    parts += ["## Runs", markdown_table(_run_rows(shown))]
    if shown.comparisons and shown.comparisons.tests:
        parts += [f"## Tests against {shown.comparisons.baseline}", markdown_table(_test_rows(shown.comparisons))]
    return "\n\n".join(parts) + "\n"


def _test_rows(comparisons: Comparisons) -> list[list[str]]:
    header = ["system", "test set", "score", "difference", "test", "p"]
    return [header] + [
        [test.system, test_set, test.metric, f"{test.difference:+.2f}", test.test, number(test.p, ".4f")]
        for test_set, test in comparisons.tests
    ]


def _run_rows(shown: Report) -> list[list[str]]:
    return [[_rounded(cell) for cell in row] for row in run_table(shown)]


def _rounded(cell: Any) -> str:
    if cell is None:
        return ABSENT
    return format(cell, ".3f") if isinstance(cell, float) else str(cell)


def run_table(shown: Report) -> list[list[Any]]:
    """Every run with its numbers, not rounded; header first, None for a missing number."""
    speed = ["tokens/s", "batch", "device"] if shown.speed else []
    header = [
        "method",
        "layers",
        "seed",
        "parameters",
        "updates",
        "valid loss",
        "verdict",
        *(column.header for column in shown.columns),
        *speed,
        "directory",
    ]
    table: list[list[Any]] = [header]
    for group in shown.groups:
        for member in group.members:
            run = member.run
            timed = [run.log.median_speed, run.batch, group.devices] if shown.speed else []
            table.append(
                [
                    group.label,
                    group.layers,
                    run.seed,
                    group.parameters,
                    run.updates,
                    run.log.final_valid_loss,
                    member.verdict.outcome,
                    *(member.score(column) for column in shown.columns),
                    *timed,
                    str(run.directory),
                ]
            )
    return table


def as_csv(shown: Report) -> str:
    """The runs, one a line."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(run_table(shown))
    return stream.getvalue()


def as_json(shown: Report) -> str:
    """All numbers, not rounded, and all notes."""
    header, *cells = run_table(shown)
    tests = shown.comparisons.tests if shown.comparisons else ()
    return strict_json(
        {
            "schema": 1,
            "groups": [_group_as_dict(group, shown) for group in shown.groups],
            "runs": [dict(zip(header, row, strict=True)) for row in cells],
            "baseline": shown.comparisons.baseline if shown.comparisons else None,
            "significance": [{"test_set": test_set, **asdict(test)} for test_set, test in tests],
            "notes": list(shown.notes),
        }
    )


def _group_as_dict(group: Group, shown: Report) -> dict[str, Any]:
    return {
        "method": group.label,
        "config": group.first.config,
        "changes": list(group.first.changes),
        "precision": group.first.precision,
        "layers": group.layers,
        "parameters": group.parameters,
        "seeds": [member.run.seed for member in group.members],
        "verdict": _verdict(group),
        "valid_loss": _spread_as_dict(group.number(lambda run: run.log.final_valid_loss)),
        **({"tokens_per_second": _speed(group), "devices": group.devices} if shown.speed else {}),
        "scores": [
            {"test_set": column.test_set, "metric": column.metric, **(_spread_as_dict(group.score(column)) or {})}
            for column in shown.columns
        ],
        "published": [{**asdict(row), "scores": printed_metrics(row)} for row in group.published],
    }


def _spread_as_dict(found: Spread | None) -> dict[str, Any] | None:
    return {"mean": found.mean, "deviation": found.deviation, "values": list(found.values)} if found else None


# --- picture --------------------------------------------------------------------------------------------------------


def mean_curve(group: Group) -> dict[int, float]:
    """Mean of the seeds' valid losses at the updates at which all of them were validated."""
    curves = [member.run.log.valid_loss for member in group.members if member.run.log.valid_loss]
    shared = set.intersection(*map(set, curves)) if curves else set()
    return {updates: statistics.fmean(curve[updates] for curve in curves) for updates in sorted(shared)}


def draw(shown: Report, path: Path) -> bool:
    """Draw loss curves and the first score of each test set; False if matplotlib is not installed."""
    pyplot = pictures.load_pyplot()
    if pyplot is None:
        return False
    scored = _drawn_columns(shown)
    figure, axes = pyplot.subplots(
        1, 1 + bool(scored), figsize=(6 + 8 * bool(scored), 6), layout="constrained", squeeze=False
    )
    curves = [pictures.Curve(group.label, mean_curve(group)) for group in shown.groups]
    pictures.draw_curves(axes[0][0], curves)
    mean = ", mean over the seeds" if shown.several_seeds else ""
    axes[0][0].set(title=f"validation loss{mean}", ylabel="bits per target token")
    pictures.add_legend(axes[0][0], pictures.BELOW)
    if scored:
        bars = [_bars(column, shown.groups) for column in scored]
        pictures.draw_bars(axes[0][1], bars, [group.label for group in shown.groups])
        spread = ", mean and standard deviation over the seeds" if shown.several_seeds else ""
        axes[0][1].set(title=f"{scored[0].metric}{spread}")
        if len(bars) > 1:
            pictures.add_legend(axes[0][1], pictures.BESIDE)
    pictures.save(pyplot, figure, path)
    return True


def _drawn_columns(shown: Report) -> list[Column]:
    """The columns of the first score; other scores have other scales."""
    return [column for column in shown.columns if column.metric == shown.columns[0].metric]


def _bars(column: Column, groups: Sequence[Group]) -> pictures.Bars:
    found = [group.score(column) for group in groups]
    return pictures.Bars(
        column.test_set, [one.mean if one else None for one in found], [one.deviation if one else None for one in found]
    )


# --- the command ----------------------------------------------------------------------------------------------------


def make_report(
    paths: Sequence[Path],
    *,
    baseline: str = "",
    scores: Sequence[str] = (),
    sort: str = "",
    samples: int = 1000,
    speed: bool = True,
    notes: Sequence[str] = (),
) -> Report:
    """Read the runs and put the report together.

    Args:
        paths: trainings, or directories of trainings.
        baseline: the row that the others are tested against; default: the first.
        scores: their names; default: sacreBLEU, and what the papers print.
        sort: a column of the table; default: rows keep the order of the runs.
        samples: resamples of the paired bootstrap; 0 for no tests.
        speed: whether to show machine-dependent columns.
        notes: lines to put before the report's own.

    Raises:
        UserError: a path is not a run, or a name is unknown.
    """
    groups = gather([read_run(path) for path in find_runs(list(paths))])
    columns = score_columns(groups, scores)
    first = named_baseline(groups, baseline)
    comparisons = compared(groups, columns, first, samples) if samples and len(groups) > 1 else None
    remarked = [*notes, *remarks(groups), *unlike(groups), *(comparisons.notes if comparisons else ())]
    shown = Report(groups, columns, comparisons, tuple(dict.fromkeys(remarked)), speed)
    return replace(shown, groups=sorted_groups(shown, sort)) if sort else shown


def report_on(paths: Sequence[Path], directory: Path, **settings: Any) -> None:
    """Print a report and write its files; ``settings`` are those of :func:`make_report`.

    Raises:
        UserError: a path is not a run, a name is unknown, or the files cannot be written.
    """
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    shown = make_report(paths, **settings)
    drawn = write(shown, directory)
    print(as_text(shown))
    print(", ".join(str(directory / f"report.{ending}") for ending in ("md", "csv", "json", *["png"] * drawn)))
    if not drawn:
        print("no picture: matplotlib is not installed; pip install 'fairseq-deep[plots]'")
    sys.stdout.flush()


def write(shown: Report, directory: Path) -> bool:
    """Write ``report.md``, ``report.csv``, ``report.json`` and ``report.png``; False if the picture is missing.

    Raises:
        UserError: they cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / "report.json", as_json(shown))
        write_whole(directory / "report.csv", as_csv(shown))
        drawn = draw(shown, directory / "report.png")
        write_whole(directory / "report.md", as_markdown(shown, picture=drawn))
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {(error.strerror or str(error)).lower()}") from error
    return drawn


def parser() -> OneLineParser:
    """Flags of ``fairseq-deep report``."""
    about = (__doc__ or "").partition(": ")[2].replace("``", "")
    flags = OneLineParser(prog="fairseq-deep report", description=about, allow_abbrev=False)
    flags.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a training, or a directory of trainings")
    flags.add_argument("--output", type=Path, default=Path("report"), metavar="DIR", help="default: report")
    flags.add_argument(
        "--baseline", default="", metavar="NAME", help="row that the others are tested against; default: the first"
    )
    flags.add_argument("--scores", default="", metavar="A,B,…", help="default: sacreBLEU, and what the papers print")
    flags.add_argument("--sort", default="", metavar="COLUMN", help="as in the table's header, for instance valid-loss")
    flags.add_argument(
        "--samples",
        type=at_least(0),
        default=1000,
        metavar="N",
        help="resamples of the paired bootstrap; 0 for no tests; default: 1000",
    )
    flags.add_argument("--without-speed", action="store_true", help="omit machine-dependent columns")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and write the files; 0, or 2 after one line for each problem."""
    return exit_code(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> None:
    args = parser().read(argv)
    report_on(
        args.runs,
        args.output,
        baseline=args.baseline,
        scores=[name.strip() for name in args.scores.split(",") if name.strip()],
        sort=args.sort,
        samples=args.samples,
        speed=not args.without_speed,
    )


if __name__ == "__main__":
    sys.exit(main())
