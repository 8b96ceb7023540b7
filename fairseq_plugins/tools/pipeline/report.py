"""``fairseq-deep report RUN ...``: one table of several trainings with scores, significance tests and papers' numbers.

RUN is a directory of ``fairseq-deep run``, or one with such directories below it. Seeds of one recipe are one row.
"""

import logging
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError, unknown_name, visible
from fairseq_plugins.files import write_whole
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.tables import ABSENT, csv_table, markdown, markdown_table, number, tabulated
from fairseq_plugins.tools.pipeline.leaderboard import Column, Group, compared, gather, remarks, score_columns
from fairseq_plugins.tools.pipeline.published import CURVE
from fairseq_plugins.tools.pipeline.results import find_runs, read_results
from fairseq_plugins.tools.pipeline.verdicts import verdict_of
from fairseq_plugins.tools.pipeline.workspace import make_directory
from fairseq_plugins.tools.scoring.significance import WELCH, Comparison

LEVEL = 0.05
"""Smaller p-values are marked."""
SENTENCES, SEEDS = "*", "†"
"""Marks of significance over the sentences, and over the seeds."""
FORMS = {
    **dict.fromkeys(("bits per byte", "bits per token", "lowest negative log-likelihood"), ".3f"),
    "updates to 1.2 bits per byte": ",.0f",
}
"""Formats of scores; default: two decimals."""


@dataclass(frozen=True)
class Report:
    """The table and its notes.

    Attributes:
        groups: the rows, in the order in which they are shown.
        columns: the scores.
        baseline: label of the row that the others are tested against.
        tests: the tests against it, each with the name of its test set.
        notes: a line for everything missing, damaged or odd.
    """

    groups: tuple[Group, ...]
    columns: tuple[Column, ...]
    baseline: str
    tests: tuple[tuple[str, Comparison], ...]
    notes: tuple[str, ...]


def make_report(paths: Sequence[Path], baseline: str = "") -> Report:
    """Read the trainings, or directories of trainings, and put the report together.

    ``baseline`` is the row that the others are tested against (default: the first). A UserError for a path that is not
    a run, or an unknown row.
    """
    groups = gather([read_results(path) for path in find_runs(list(paths))])
    columns, wanted = score_columns(groups), baseline.removesuffix(".yaml")
    configs = [group.runs[0].config or "" for group in groups]
    of_config = [
        group for group, config in zip(groups, configs, strict=True) if wanted in ("", config, Path(config).name)
    ]
    named = [group for group in groups if group.label == wanted] or of_config
    if not named:
        raise UserError(unknown_name("--baseline", baseline, [group.label for group in groups]))
    if wanted and len(named) > 1:
        raise UserError(f"--baseline {baseline}: several rows: {', '.join(repr(group.label) for group in named)}")
    first = named[0]
    tests, untested = compared(groups, columns, first) if len(groups) > 1 else ([], [])
    lines = dict.fromkeys([*remarks(groups), *untested])
    return Report(groups, columns, first.label, tuple(tests), tuple(lines))


# --- the table ------------------------------------------------------------------------------------------------------


def table(shown: Report) -> list[list[str]]:
    """The cells, header first. A column without a single entry is left out."""
    header = ["method", "layers", "seeds", "parameters", "updates", "valid loss"]
    header += [
        *(f"{column.test_set} {column.metric}" for column in shown.columns),
        "paper",
        "verdict",
        "tokens/s",
        "device",
    ]
    rows = []
    for group in shown.groups:
        speeds = group.values(lambda run: run.log.median_speed)
        cells = [
            group.label,
            group.layers or ABSENT,
            str(len(group.runs)),
            number(group.runs[0].settings.get("parameters"), ",d"),
            _mean(group, group.values(lambda run: float(run.updates)), ",.0f"),
            _mean(group, group.values(lambda run: run.log.final_valid_loss), ".3f"),
            *(_score(group, column, shown) for column in shown.columns),
            _printed(group),
            group.verdict,
            number(statistics.median(speeds) if speeds else None, ",.0f"),
            group.devices or ABSENT,
        ]
        rows.append(cells)
    columns = [column for column in zip(header, *rows, strict=True) if set(column[1:]) != {ABSENT}]
    return [list(row) for row in zip(*columns, strict=True)]


def _mean(group: Group, values: Sequence[float], form: str) -> str:
    """Mean and deviation; with the number of runs if some have no value."""
    if not values:
        return ABSENT
    spread = statistics.stdev(values) if len(values) > 1 else None
    text = format(statistics.fmean(values), form) + (f" ± {spread:{form}}" if spread else "")
    return text if len(values) == len(group.runs) else f"{text} ({len(values)} of {len(group.runs)})"


def _score(group: Group, column: Column, shown: Report) -> str:
    """A score with the marks of its tests."""
    text = _mean(group, group.values(column.score), FORMS.get(column.metric, ".2f"))
    place = (column.test_set, column.metric, group.label)
    tests = [test for test_set, test in shown.tests if (test_set, test.metric, test.system) == place]
    marks = [SEEDS if test.test == WELCH else SENTENCES for test in tests if test.p is not None and test.p < LEVEL]
    return f"{text} {''.join(marks)}".rstrip()


def _printed(group: Group) -> str:
    """The paper's results, with the name of the score if there are several; or the differences from its recipe."""
    if group.departures:
        return "; ".join(dict.fromkeys(difference.short for difference in group.departures))
    rows = [row for row in group.reproduced if row.printed != CURVE] or group.reproduced[:1]
    kinds = [row.scorer if row.metric == "BLEU" else row.metric for row in rows]
    several = len(set(kinds)) > 1
    results = [f"{row.summary} {kind}" if several else row.summary for row, kind in zip(rows, kinds, strict=True)]
    return "; ".join(dict.fromkeys(results)) or ABSENT


def legend(shown: Report) -> Iterator[str]:
    """Explanations of the table, one line each."""
    several = any(len(group.runs) > 1 for group in shown.groups)
    deviations = "±: standard deviation over the seeds (n - 1). " if several else ""
    yield f"{deviations}Valid loss: negative log-likelihood in bits per target token."
    yield "Tokens/s: target tokens in training, median over the log's intervals and over the seeds."
    yield from dict.fromkeys(
        f"{column.metric}: {metric['signature']}"
        for column in shown.columns
        for group in shown.groups
        for evaluation in group.evaluations(column.test_set)
        if (metric := evaluation.metrics.get(column.metric)) and metric.get("signature")
    )
    yield from dict.fromkeys(
        f"{column.test_set}: mean of {', '.join(column.mean_over)}" for column in shown.columns if column.mean_over
    )
    signatures = dict.fromkeys(test.signature for _, test in shown.tests if test.signature)
    if signatures:
        yield (
            f"{SENTENCES}: differs from {shown.baseline} with p < {LEVEL}, paired bootstrap over the sentences, "
            f"the largest p of all pairs of seeds ({'; '.join(signatures)})"
        )
    if any(test.test == WELCH for _, test in shown.tests):
        yield f"{SEEDS}: differs from {shown.baseline} with p < {LEVEL}, Welch's t-test over the seeds"
    for group in shown.groups:
        for row in group.reproduced:
            where = f"{row.paper}, {row.table}, {row.row}"
            yield f"{group.label}: {row.printed} {row.metric} ({row.scorer}) on {' '.join(row.test)}: {where}"


# --- files ----------------------------------------------------------------------------------------------------------


def as_text(shown: Report) -> str:
    """Return the report for a terminal."""
    return "\n".join([tabulated(table(shown)), "", *map(visible, [*legend(shown), *shown.notes])]) + "\n"


def as_markdown(shown: Report) -> str:
    """Return the report for a page."""
    parts = ["# Leaderboard", markdown_table(table(shown)), "\n".join(f"- {markdown(line)}" for line in legend(shown))]
    if shown.notes:
        parts.append("Remarks:\n\n" + "\n".join(f"- {markdown(line)}" for line in shown.notes))
    if shown.tests:
        rows = [["system", "test set", "score", "difference", "test", "p"]]
        rows += [
            [test.system, test_set, test.metric, f"{test.difference:+.2f}", test.test, number(test.p, ".4f")]
            for test_set, test in shown.tests
        ]
        parts += [f"## Tests against {markdown(shown.baseline)}", markdown_table(rows)]
    return "\n\n".join(parts) + "\n"


def as_csv(shown: Report) -> str:
    """Every run with its numbers and all its scores, not rounded, one a line; an empty cell for a missing number."""
    evaluations = [evaluation for group in shown.groups for evaluation in group.evaluations()]
    scored = [Column(evaluation.test_set, name) for evaluation in evaluations for name in evaluation.metrics]
    columns = list(dict.fromkeys([*shown.columns, *scored]))
    header = ["method", "layers", "seed", "parameters", "updates", "valid loss", "verdict"]
    header += [*(f"{column.test_set} {column.metric}" for column in columns), "tokens/s", "device", "directory"]
    rows: list[list[object]] = [[*header]]
    for group in shown.groups:
        for run in group.runs:
            size, loss = run.settings.get("parameters"), run.log.final_valid_loss
            training = [group.label, group.layers, run.seed, size, run.updates, loss]
            scores = [column.score(run) for column in columns]
            machine = [run.log.median_speed, group.devices, run.directory]
            rows.append([*training, verdict_of(run).outcome, *scores, *machine])
    return csv_table(rows)


# --- the command ----------------------------------------------------------------------------------------------------


def report_on(paths: Sequence[Path], directory: Path, baseline: str = "") -> None:
    """Print the report of :func:`make_report`; write ``report.md`` and ``report.csv`` into ``directory``."""
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    shown = make_report(paths, baseline)
    files = {directory / "report.md": as_markdown(shown), directory / "report.csv": as_csv(shown)}
    make_directory(directory)
    for path, content in files.items():
        write_whole(path, content)
    print(as_text(shown))
    print(", ".join(map(str, files)))
    sys.stdout.flush()


def main(argv: Sequence[str]) -> int:
    """Print the table and write the files."""
    about = (__doc__ or "").partition(": ")[2].replace("``", "")
    flags = OneLineParser(prog="fairseq-deep report", description=about)
    flags.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a training, or a directory of trainings")
    flags.add_argument("--output", type=Path, default=Path("report"), metavar="DIR", help="output directory")
    baseline = "row that the others are tested against; default: the first"
    flags.add_argument("--baseline", default="", metavar="NAME", help=baseline)
    args = flags.read(argv)
    report_on(args.runs, args.output, args.baseline)
    return 0
