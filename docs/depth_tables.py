"""The page, the tables and the picture of the study of depth, made of ``docs/results/depth.tsv``.

``docs/generate.py`` writes ``docs/results/depth.md`` from ``depth.template``, in which ``{{bits denseformer_18e18d}}``
stands for a number of the results, and two TSV files with the tables that are too long for the page.
``python docs/depth_tables.py`` draws ``docs/results/depth.png``.
"""

import csv
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from fairseq_plugins.tables import markdown_table
from fairseq_plugins.tools.plots import COLOURS, NO_MATPLOTLIB, load_pyplot, save
from fairseq_plugins.tools.scoring.significance import welch

RESULTS = Path(__file__).resolve().parent / "results" / "depth.tsv"
BASELINE = "pre_ln"
OK, SEEDS = "ok", 3
SWEEP, FULL, LONG = "sweep", "full", "long"
RATES = ("0.0005", "0.001", "0.002", "0.004")
"""Those of every whole sweep; some go on above."""
CERTAIN = 0.05
SCORED = {"bits": "valid", "bleu": "bleu_test"}
TIMED_ON = "Intel(R) Xeon(R) Processor"
"""The machine whose processor seconds are compared: machines differ in speed."""
CHANGES = {
    "_base_init": "other base initialization",
    "_warm_up_1000": "warm-up of 1,000",
    "_separate_tables": "two embeddings",
}
"""What a cell changes beside the one without this ending, which has the same seed and rate."""
CONTROLS = ("_warm_up", "_wide", "_muon", *CHANGES)
"""Endings of the names of cells that are no method of their own: they belong to no family of tests."""

Line = Mapping[str, str]
Key = tuple[str, str, str]
"""A cell's configuration, rate and GPU; the last is empty for CPUs."""


def read(results: Path = RESULTS) -> list[Line]:
    """The lines of the study, one for each training."""
    with open(results, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


# --- cells ----------------------------------------------------------------------------------------------------------


def cells(lines: Sequence[Line], depth: str = "", stage: str = FULL) -> dict[Key, list[Line]]:
    """The trainings of a stage by cell, the shallow first, in alphabetical order.

    CPUs count as one machine: a training of 600 updates had the same bits on both of the study.
    """
    chosen = [line for line in lines if line["stage"] == stage and line["config"].endswith(depth)]
    found: dict[Key, list[Line]] = {}
    for line in sorted(chosen, key=lambda line: (_layers(line["config"]), line["config"], float(line["rate"]))):
        found.setdefault((line["config"], line["rate"], line["machine"] if _on_gpu(line) else ""), []).append(line)
    return found


def seeds_of(lines: Sequence[Line], name: str) -> list[Line]:
    """The full trainings of ``CONFIG`` or ``CONFIG@RATE`` that learnt, of one rate and all on CPUs or all on a GPU.

    These are the rate and the machines with the most seeds; CPUs come before a GPU with as many.
    """
    config, _, rate = name.partition("@")
    alike: dict[tuple[str, bool], list[Line]] = {}
    for line in lines:
        if (line["stage"], line["outcome"], line["config"]) == (FULL, OK, config) and rate in ("", line["rate"]):
            alike.setdefault((line["rate"], _on_gpu(line)), []).append(line)
    return max(alike.values(), key=lambda each: (len(each), not _on_gpu(each[0])), default=[])


def _on_gpu(line: Line) -> bool:
    return line["machine"].startswith("NVIDIA")


def mean_scores(lines: Sequence[Line], depth: str) -> dict[str, str]:
    """The mean BLEU of the full trainings at a depth, by method."""
    names = dict.fromkeys(line["config"] for line in lines if line["config"].endswith(f"_{depth}"))
    found = {name: seeds_of(lines, name) for name in names}
    return {_method(name): f"{_depth(name)} {mean(each, 'bleu_test'):.1f} BLEU" for name, each in found.items() if each}


def mean(lines: Sequence[Line], column: str) -> float:
    """Mean of a column."""
    return statistics.fmean(float(line[column]) for line in lines)


def spread(lines: Sequence[Line], column: str, form: str) -> str:
    """Mean and standard deviation of a column."""
    values = [float(line[column]) for line in lines]
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{form}}{deviation}" if values else ""


def at(line: Line, share: float) -> float:
    """The validation loss after a share of the updates, on a line between two validations."""
    updates, losses = zip(*(map(float, point.split(":")) for point in line["curve"].split()), strict=True)
    return float(np.interp(share * int(line["updates"]), updates, losses))


def last_tenth(line: Line) -> float:
    """The percentage by which the validation loss falls over the last tenth of the updates."""
    return 100 * (1 - at(line, 1) / at(line, 0.9))


def relative_time(lines: Sequence[Line], config: str) -> float | None:
    """Processor seconds of an update on ``TIMED_ON``, with those of the baseline at 18-18 as 1; None if not known."""

    def seconds(name: str) -> float | None:
        known = [line for line in lines if (line["config"], line["machine"], line["outcome"]) == (name, TIMED_ON, OK)]
        timed = [line for line in known if line["processor_s"]]
        return statistics.fmean(float(line["processor_s"]) / int(line["updates"]) for line in timed) if timed else None

    ours, theirs = seconds(config), seconds(f"{BASELINE}_18e18d")
    return ours / theirs if ours and theirs else None


# --- tests ----------------------------------------------------------------------------------------------------------


def over_seeds(ours: Sequence[Line], theirs: Sequence[Line], column: str) -> float | None:
    """The p-value of Welch's t-test over the seeds; None where a side has not two of them."""
    sides = [[float(line[column]) for line in side if line["outcome"] == OK] for side in (ours, theirs)]
    return welch(*sides) if min(map(len, sides)) > 1 else None


def holm(p_values: Mapping[str, float | None]) -> dict[str, float]:
    """Holm's correction (1979): the k-th smallest of m is multiplied by m - k + 1, and none is below one before it."""
    known = sorted((p, name) for name, p in p_values.items() if p is not None)
    corrected: dict[str, float] = {}
    largest = 0.0
    for place, (p, name) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - place)))
        corrected[name] = largest
    return corrected


def against_baseline(lines: Sequence[Line], depth: str, column: str) -> dict[str, float]:
    """Welch's p-values of the methods of a depth against the baseline, with Holm's correction over these methods.

    Cells with fewer seeds and controls are in no test: they would make the test of the others stricter.
    """
    names = dict.fromkeys(line["config"] for line in lines if line["config"].endswith(f"_{depth}"))
    found = {name: seeds_of(lines, name) for name in names if not _method(name).endswith(CONTROLS)}
    base = found.pop(f"{BASELINE}_{depth}", [])
    return holm({name: over_seeds(each, base, column) for name, each in found.items() if len(each) >= SEEDS})


COMPARED = (
    ("H2: depth helps Admin", "admin_18e18d", "admin_6e6d", "valid"),
    ("H2: depth helps B2T", "b2t_18e18d", "b2t_6e6d", "valid"),
    ("H3: Admin is better than Pre-LN at 18-18", "admin_18e18d", "pre_ln_18e18d", "bleu_test"),
    ("H3: B2T is better than Pre-LN at 18-18", "b2t_18e18d", "pre_ln_18e18d", "bleu_test"),
    *(
        (f"H4: {name} needs no warm-up at {depth}", f"{method}_{file}", f"{method}_warm_up_{file}", "valid")
        for depth, file in (("6-6", "6e6d"), ("18-18", "18e18d"))
        for name, method in (("ReZero", "rezero"), ("T-Fixup", "t_fixup"))
    ),
    ("H5: deep is better than wide, Pre-LN", "pre_ln_18e18d", "pre_ln_wide_6e6d", "valid"),
    ("H5: deep is better than wide, Admin", "admin_18e18d", "admin_wide_6e6d", "valid"),
)
"""Each hypothesis that one cell is better than another, in a column of the results."""


def verdicts_table(lines: Sequence[Line]) -> str:
    """The table of the protocol's hypotheses, judged by Welch's tests over the seeds.

    The family of Holm's correction is the comparisons of the hypothesis.
    """
    post = [line for line in lines if line["config"] == "post_ln_18e18d"]
    learnt = [float(line["valid"]) for line in post if line["outcome"] == OK]
    swept = {line["rate"] for line in post if line["stage"] == SWEEP}
    measured = f"{len(learnt)} of {len(post)} learnt" + (f", the best {min(learnt):.3f} bits" if learnt else "")
    failed = "not supported" if learnt else "supported" if swept >= set(RATES) else "open"
    rows = [["hypothesis", "parameters", "updates", "rates", "measured", "p", "verdict"]]
    size = [_millions(line) for line in post[:1]]
    rows.append(["H1: Post-LN fails at 18-18", *size, "600, 3000", "all", measured, "", failed])
    corrected: dict[str, float] = {}
    for hypothesis in {name[:2] for name, *_ in COMPARED}:
        mine = [row for row in COMPARED if row[0].startswith(hypothesis)]
        corrected |= holm(
            {name: over_seeds(seeds_of(lines, a), seeds_of(lines, b), score) for name, a, b, score in mine}
        )
    for name, ours, theirs, column in COMPARED:
        unit, form = ("bits", ".3f") if column == "valid" else ("BLEU", ".1f")
        sides = [seeds_of(lines, config) for config in (ours, theirs)]
        if not all(sides):
            failures = [line for line in lines if (line["config"], line["stage"]) == (ours, FULL) and not sides[0]]
            said = f"{len(failures)} full trainings have failed" if failures else "not trained yet"
            rows.append([name, "", "", "", said, "", "not supported" if failures else "open"])
            continue
        means = [mean(side, column) for side in sides]
        better = means[0] < means[1] if column == "valid" else means[0] > means[1]
        certain = corrected.get(name, 1.0) <= CERTAIN
        verdict = "not supported" if not better else "supported" if certain else "undecided"
        seeds = min(map(len, sides))
        verdict += f", {seeds} of {SEEDS} seeds" if seeds < SEEDS else ""
        pairs = [
            ", ".join(each) for each in zip(*((_millions(side[0]), side[0]["rate"]) for side in sides), strict=True)
        ]
        said = f"{means[0]:{form}}, {means[1]:{form}} {unit}"
        rows.append([name, pairs[0], sides[0][0]["updates"], pairs[1], said, _p(corrected.get(name)), verdict])
    return markdown_table(rows)


def _between(lines: Sequence[Line], ours: str, theirs: str, column: str) -> float | None:
    return over_seeds(seeds_of(lines, ours), seeds_of(lines, theirs), column)


# --- tables ---------------------------------------------------------------------------------------------------------


def results_rows(lines: Sequence[Line], depth: str, least_seeds: int = 1) -> list[list[str]]:
    """The rows of a depth: means and standard deviations of the full trainings, and tests against the baseline.

    Left out are cells of fewer full trainings than ``least_seeds``, and those of a GPU that a CPU has trained again.
    """
    losses, scores = (against_baseline(lines, depth, column) for column in ("valid", "bleu_test"))
    rows = []
    for (config, rate, _), found in cells(lines, f"_{depth}").items():
        done = [line for line in found if line["outcome"] == OK]
        tested = bool(done) and done[0] in seeds_of(lines, config)
        if len(found) < least_seeds or (least_seeds > 1 and done and not tested):
            continue
        bootstraps = [float(line["p_test"]) for line in done if line["p_test"]]
        rows.append(
            [
                _named(config),
                _millions(found[0]),
                found[0]["updates"],
                rate,
                f"{len(done)} of {len(found)}",
                short(_machines(found)),
                spread(done, "valid", ".3f"),
                spread(done, "bleu_test", ".1f"),
                *(_p(p.get(config) if tested else None) for p in (losses, scores)),
                f"{max(bootstraps):.3f} ({len(bootstraps)} of {len(done)})" if bootstraps else "",
            ]
        )
    return rows


RESULTS_HEAD = ["", "parameters", "updates", "rate", "seeds", "machine", "bits", "BLEU"]
RESULTS_HEAD += ["p, bits", "p, BLEU", "bootstrap p"]


def changes_table(lines: Sequence[Line]) -> str:
    """Bits and BLEU of each full training that was repeated with one change, without a change and with each."""
    rows: dict[str, list[str]] = {}
    trained: dict[str, list[Line]] = {}
    for (place, suffix), line in product(enumerate(CHANGES, start=1), lines):
        if line["stage"] == FULL and _method(line["config"]).endswith(suffix):
            plain = full_training(lines, {**line, "config": line["config"].replace(suffix, "")})
            row = rows.setdefault(plain["config"], [_scores(plain), *[""] * len(CHANGES)])
            row[place] = _scores(line)
            trained.setdefault(plain["config"], [plain]).append(line)
    head = ["", "parameters", "updates", "rate", "machine", "unchanged", *CHANGES.values()]
    shared = {name: [_millions(each[0]), each[0]["updates"], each[0]["rate"]] for name, each in trained.items()}
    cells = ([_named(name), *shared[name], short(_machines(trained[name])), *row] for name, row in rows.items())
    return markdown_table([head, *cells])


def _scores(line: Line) -> str:
    return f"{float(line['valid']):.3f}, {float(line['bleu_test']):.1f}" if line["outcome"] == OK else line["outcome"]


def full_training(lines: Sequence[Line], of: Line) -> Line:
    """The full training of the configuration, seed and rate of a line, such as a training of three times the length."""
    same = ("config", "seed", "rate")
    return next(line for line in lines if line["stage"] == FULL and all(line[key] == of[key] for key in same))


def sweeps(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The trainings of each sweep by configuration, from the lowest rate to the highest."""
    found: dict[str, list[Line]] = {}
    for (config, *_), trained in cells(lines, stage=SWEEP).items():
        found.setdefault(config, []).extend(trained)
    return {config: sorted(tried, key=lambda line: float(line["rate"])) for config, tried in found.items()}


def best_of(tried: Sequence[Line]) -> Line | None:
    """The training of a sweep with the lowest validation loss; None if none learnt."""
    return min((line for line in tried if line["outcome"] == OK), key=lambda line: float(line["valid"]), default=None)


def rates_table(lines: Sequence[Line]) -> str:
    """The best rate of each sweep: a row for methods with the same rates at all depths."""
    depths = dict.fromkeys(config.rpartition("_")[2] for config in sweeps(lines))
    rates: dict[str, dict[str, str]] = {}
    for config, tried in sweeps(lines).items():
        rates.setdefault(_method(config), {})[config.rpartition("_")[2]] = _best_rate(tried)
    alike: dict[tuple[str, ...], list[str]] = {}
    for method, found in rates.items():
        alike.setdefault(tuple(found.get(depth, "") for depth in depths), []).append(f"`{method}`")
    rows = [["methods", *(_depth(f"_{depth}") for depth in depths)]]
    return markdown_table([*rows, *([", ".join(methods), *found] for found, methods in sorted(alike.items()))])


def _best_rate(tried: Sequence[Line]) -> str:
    """``≥ 4e-3`` where the highest rate is the best, ``1e-3, fails from 2e-3`` where rates above fail."""
    best = best_of(tried)
    if best is None:
        return "fails at every rate"
    failed = [line for line in tried[tried.index(best) :] if line["outcome"] != OK]
    fails = f", fails from {1000 * float(failed[0]['rate']):g}e-3" if failed else ""
    return f"{'≥ ' if best is tried[-1] else ''}{1000 * float(best['rate']):g}e-3{fails}"


def sweep_tsv(lines: Sequence[Line]) -> str:
    """Each training of the sweeps, with the bits that it is above the best of its configuration."""
    rows = [["config", "parameters", "updates", "rate", "machine", "outcome", "bits", "above_best", "best"]]
    for config, tried in sweeps(lines).items():
        best = best_of(tried)
        for line in tried:
            learnt = best and line["outcome"] == OK
            above = f"{float(line['valid']) - float(best['valid']):.3f}" if learnt else ""
            end = ", highest tried" if line is tried[-1] else ""
            shared = (line[name] for name in ("parameters", "updates", "rate", "machine", "outcome", "valid"))
            rows.append([config, *shared, above, f"best{end}" if line is best else ""])
    return _tsv(rows)


def cells_tsv(lines: Sequence[Line]) -> str:
    """Every cell with all its means; standard deviations where it has several seeds."""
    numbers = ("valid", "bleu_test", "bleu_test_averaged", "chrf_test", "bleu_multi30k")
    head = ["config", "parameters", "stage", "updates", "rate", "machine", "seeds", "learnt"]
    head += [name for number in numbers for name in (number, f"{number}_sd")]
    rows = [(*head, "bits_at_half", "last_tenth_percent")]
    for stage in (FULL, LONG):
        for (config, rate, _), found in cells(lines, stage=stage).items():
            done = [line for line in found if line["outcome"] == OK]
            figures = [part for name in numbers for part in (*spread(done, name, ".3f").split(" ± "), "")[:2]]
            figures += [f"{statistics.fmean(at(line, 0.5) for line in done):.3f}"] if done else [""]
            figures += [f"{statistics.fmean(map(last_tenth, done)):.2f}"] if done else [""]
            seeds = str(len(found)), str(len(done))
            size, updates = (found[0][name] for name in ("parameters", "updates"))
            rows.append((config, size, stage, updates, rate, _machines(found), *seeds, *figures))
    return _tsv(rows)


def _tsv(rows: Iterable[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


# --- the page -------------------------------------------------------------------------------------------------------


def page(template: str, lines: Sequence[Line]) -> str:
    """The template with its fields filled: ``{{NAME ARGUMENT ...}}`` is a method of :class:`Fields`.

    Raises:
        AttributeError: a field names no method.
        ValueError: a cell has not been trained.
    """
    fields = Fields(lines)

    def filled(field: re.Match[str]) -> str:
        name, *arguments = field[1].split()
        return str(getattr(fields, name)(*arguments))

    return re.sub(r"\{\{(.+?)\}\}", filled, template)


@dataclass(frozen=True)
class Fields:
    """Names for a template. A cell is ``CONFIG`` or ``CONFIG@RATE``, a column ``bits`` or ``bleu``."""

    lines: Sequence[Line]

    def _trained(self, cell: str) -> Sequence[Line]:
        if found := seeds_of(self.lines, cell):
            return found
        raise ValueError(f"{cell} has not been trained to the end")

    def bits(self, cell: str) -> str:
        """Mean validation loss."""
        return f"{mean(self._trained(cell), 'valid'):.3f}"

    def bleu(self, cell: str) -> str:
        """Mean BLEU."""
        return f"{mean(self._trained(cell), 'bleu_test'):.1f}"

    def seeds(self, cell: str) -> int:
        """How many seeds have learnt."""
        return len(self._trained(cell))

    def parameters(self, cell: str) -> str:
        """The size of the model."""
        return _millions(self._trained(cell)[0])

    def p(self, column: str, ours: str, theirs: str) -> str:
        """Welch's test of two cells, without a correction."""
        return _p(_between(self.lines, ours, theirs, SCORED[column]))

    def difference(self, column: str, ours: str, theirs: str) -> str:
        """How far two means lie apart."""
        means = [mean(self._trained(cell), SCORED[column]) for cell in (ours, theirs)]
        return f"{abs(means[0] - means[1]):{'.3f' if column == 'bits' else '.1f'}}"

    def gained(self, config: str) -> str:
        """BLEU of the full training and of the one that is three times as long, with the same seed and rate."""
        [long] = [line for line in self.lines if (line["config"], line["stage"]) == (config, LONG)]
        return " to ".join(f"{float(line['bleu_test']):.1f}" for line in (full_training(self.lines, long), long))

    def swept(self, cell: str) -> str:
        """Validation loss of ``CONFIG@RATE`` in the sweep, or its outcome."""
        wanted = *cell.split("@"), SWEEP
        [found] = [line for line in self.lines if (line["config"], line["rate"], line["stage"]) == wanted]
        return found["valid"] or found["outcome"]

    def time(self, config: str) -> str:
        """Time of an update, as a multiple of that of Pre-LN at 18-18."""
        found = relative_time(self.lines, config)
        return "not timed" if found is None else f"{found:.2f}"

    def at_the_top(self, depth: str) -> str:
        """How many of the sweeps of a depth have their best rate at the highest of the protocol's rates, or above."""
        found = _ends(self.lines, depth)
        return f"{sum(found.values())} of {len(found)}"

    def ended(self, outcome: str) -> int:
        """How many trainings of the sweeps had an outcome."""
        return sum(line["outcome"] == outcome for line in self.lines if line["stage"] == SWEEP)

    def verdicts(self) -> str:
        """The table of hypotheses."""
        return verdicts_table(self.lines)

    def changes(self) -> str:
        """The table of trainings with one change."""
        return changes_table(self.lines)

    def cells(self, *depths: str) -> str:
        """The table of the depths ``DEPTH:LEAST_SEEDS``."""
        chosen = (depth.split(":") for depth in depths)
        rows = [row for depth, seeds in chosen for row in results_rows(self.lines, depth, int(seeds))]
        return markdown_table([RESULTS_HEAD, *rows])


def _ends(lines: Sequence[Line], depth: str) -> dict[str, bool]:
    """Whether the best rate is the protocol's highest or above, for each configuration that learnt in its sweep."""
    best = {config: best_of(tried) for config, tried in sweeps(lines).items() if config.endswith(f"_{depth}")}
    return {config: float(line["rate"]) >= float(RATES[-1]) for config, line in best.items() if line}


def short(machine: str) -> str:
    """A machine's name without its marks: ``Intel Xeon`` for ``Intel(R) Xeon(R) Processor``."""
    return re.sub(r"\(R\)| Processor", "", machine)


def _machines(lines: Sequence[Line]) -> str:
    return ", ".join(dict.fromkeys(line["machine"] for line in lines))


def _named(config: str) -> str:
    return f"`{_method(config)}` {_depth(config)}"


def _millions(line: Line) -> str:
    return f"{int(line['parameters']) / 1e6:.2f}M"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else "<0.001"


def _method(config: str) -> str:
    return config.rpartition("_")[0]


def _depth(config: str) -> str:
    return config.rpartition("_")[2].replace("e", "-").removesuffix("d")


def _layers(config: str) -> int:
    return int(config.rpartition("_")[2].partition("e")[0])


# --- the picture ----------------------------------------------------------------------------------------------------

DRAWN = {
    "hyper_connections": ("hyper-connections {}", -0.02, 2.0, "left"),
    "denseformer": ("DenseFormer {}", 0.06, 0.4, "left"),
    "rezero": ("ReZero {}", 0.06, -0.5, "left"),
    "pre_ln": ("Pre-LN {}", 0.06, 0.0, "left"),
    "admin": ("Admin {}:\nstill far from trained\nafter 3,000 updates", -0.05, -1.6, "right"),
}
"""Each method's label, and the place of the label next to the last point."""
WIDE = "pre_ln_wide_6e6d"


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draw BLEU at each depth for five methods, with the wide model as a line across."""
    pyplot = load_pyplot()
    assert pyplot is not None, NO_MATPLOTLIB
    depths = ("6e6d", "18e18d", "36e12d")
    canvas, axis = pyplot.subplots(figsize=(8, 4.6), layout="constrained")
    wide = mean(seeds_of(lines, WIDE), "bleu_test")
    axis.plot([-0.35, 2.04], [wide, wide], color="0.45", linestyle="--", linewidth=1.5)
    text = f"wide Pre-LN at 6-6, {_millions(seeds_of(lines, WIDE)[0])} parameters: {wide:.1f}"
    axis.text(-0.33, wide + 0.9, text, color="0.3", fontsize=10)
    for number, (method, (label, x, y, side)) in enumerate(DRAWN.items(), start=1):
        found = [seeds_of(lines, f"{method}_{depth}") for depth in depths]
        places = [place for place, each in enumerate(found) if each]
        means = [mean(found[place], "bleu_test") for place in places]
        axis.plot(places, means, color=COLOURS[number], marker="o", linewidth=2)
        dots = [(place, float(line["bleu_test"])) for place in places for line in found[place]]
        axis.plot(*zip(*dots, strict=True), ".", color=COLOURS[number])
        text = label.format(f"{means[-1]:.1f}")
        axis.text(places[-1] + x, means[-1] + y, text, color=COLOURS[number], fontsize=11, va="center", ha=side)
    sizes = [_millions(seeds_of(lines, f"{BASELINE}_{depth}")[0]) for depth in depths]
    names = [f"{_depth(f'_{depth}')} layers\n{size} parameters" for depth, size in zip(depths, sizes, strict=True)]
    axis.set_xticks(range(len(depths)), names, fontsize=10)
    axis.set(xlim=(-0.35, 2.75), ylim=(0, 32), ylabel="BLEU on the test set")
    axis.set_title("BLEU after 3,000 updates by depth; width 64, rates up to 4e-3 (dots: seeds)", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    save(canvas, path)


if __name__ == "__main__":
    draw(read(), RESULTS.with_suffix(".png"))
