"""The tables and the picture of the study of depth, made of ``docs/results/depth.tsv``.

``docs/generate.py`` puts the tables into pages; ``python docs/depth_tables.py`` draws ``docs/results/depth.png``.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fairseq_plugins.plots import NO_MATPLOTLIB, load_pyplot, look, save
from fairseq_plugins.scoring.significance import welch
from fairseq_plugins.tables import markdown_table

RESULTS = Path(__file__).resolve().parent / "results" / "depth.tsv"
BASELINE = "pre_ln"
SCORES = ("bleu_test", "bleu_test_averaged", "chrf_test", "bleu_multi30k")
OK, RATES, SEEDS = "ok", 4, 3
FULL, LONG = "full", "long"
GOAL = 5.0
"""A loss that most trainings reach, in bits per token."""
SHARES = np.linspace(1 / 24, 1, 24)
"""Of the updates, where curves are drawn; validations are so far apart."""

Line = Mapping[str, str]


def read() -> list[Line]:
    """The lines of the study, one for each training."""
    with open(RESULTS, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def configs(lines: Sequence[Line], depth: str = "") -> list[str]:
    """What was trained, the shallow first, in alphabetical order."""
    names = {line["config"] for line in lines if line["config"].endswith(depth)}
    return sorted(names, key=lambda name: (_layers(name), name))


def sweep_table(lines: Sequence[Line]) -> str:
    """Validation loss at every rate, in bits per token; the best is bold, and marked at an end of the range."""
    swept = [line for line in lines if line["stage"] == "sweep"]
    rates = sorted({float(line["rate"]) for line in swept})
    rows = []
    for config in configs(swept):
        found = {float(line["rate"]): line for line in swept if line["config"] == config}
        losses = {rate: float(line["valid"]) for rate, line in found.items() if line["outcome"] == OK}
        best = min(losses, key=lambda rate: losses[rate]) if losses and len(found) == len(rates) else None
        cells = []
        for rate in rates:
            line = found.get(rate)
            cell = "" if line is None else line["valid"] if line["outcome"] == OK else line["outcome"]
            end = " *" if rate in (rates[0], rates[-1]) else ""
            cells.append(f"**{cell}**{end}" if rate == best else cell)
        rows.append([_named(config), *cells])
    return markdown_table([["", *(f"{rate:g}" for rate in rates)], *rows], escape="")


def sensitivity_table(lines: Sequence[Line]) -> str:
    """How much worse half and twice the best rate of the sweep are, in bits per token."""
    swept = [line for line in lines if line["stage"] == "sweep"]
    rows = [["", "best rate", "half of it", "twice"]]
    for config in configs(swept):
        found = {float(line["rate"]): line for line in swept if line["config"] == config}
        losses = {rate: float(line["valid"]) for rate, line in found.items() if line["outcome"] == OK}
        if not losses:
            continue
        best = min(losses, key=lambda rate: losses[rate])

        def more(line: Line | None, least: float = losses[best]) -> str:
            if line is None:
                return "not tried"
            return f"+{float(line['valid']) - least:.3f}" if line["outcome"] == OK else line["outcome"]

        rows.append([_named(config), f"{best:g}", more(found.get(best / 2)), more(found.get(best * 2))])
    return markdown_table(rows)


def trained(lines: Sequence[Line], depth: str = "") -> dict[str, list[Line]]:
    """The trainings to the end by configuration, one for each seed, in the order of :func:`configs`."""
    full = [line for line in lines if _full(line)]
    return {config: [line for line in full if line["config"] == config] for config in configs(full, depth)}


def results_table(lines: Sequence[Line], depth: str) -> str:
    """Means and standard deviations over the seeds of the trainings to the end, and the tests against the baseline."""
    cells = trained(lines, f"_{depth}")
    losses, scores = (against_baseline(lines, depth, column) for column in ("valid", "bleu_test"))
    head = ["", "seeds", "rate", "valid", "at half", "last tenth, %", "BLEU", "average", "chrF", "multi30k"]
    head += ["bootstrap p", "Welch, loss", "Welch, BLEU", "processor s", f"to {GOAL:g} bits", "wall s to it"]
    rows = [head]
    for config, found in cells.items():
        done = [line for line in found if line["outcome"] == OK]
        bootstraps = [float(line["p_test"]) for line in done if line["p_test"]]
        rows.append(
            [
                _named(config),
                f"{len(done)} of {len(found)}",
                found[0]["rate"],
                spread(done, "valid", ".3f"),
                _mean([at(line, 0.5) for line in done], ".3f"),
                _mean([last_tenth(line) for line in done], ".1f"),
                *(spread(done, score, ".1f") for score in SCORES),
                f"{max(bootstraps):.3f}" if bootstraps else "",
                _p(losses.get(config)),
                _p(scores.get(config)),
                _mean([float(line["processor_s"]) for line in done if line["processor_s"]], ".0f"),
                *(
                    _mean([seconds for line in done if (seconds := to_goal(line, clock)) is not None], ".0f")
                    for clock in ("processor_s", "wall_s")
                ),
            ]
        )
    return markdown_table(rows)


def mean_scores(lines: Sequence[Line], depth: str) -> dict[str, str]:
    """The mean BLEU of the trainings to the end at a depth, by method."""
    cells = trained([line for line in lines if line["outcome"] == OK], f"_{depth}")
    scores = {config: [float(line["bleu_test"]) for line in found] for config, found in cells.items()}
    return {_method(config): f"{_depth(config)} {_mean(each, '.1f')} BLEU" for config, each in scores.items()}


def longer(lines: Sequence[Line]) -> list[Line]:
    """The trainings that are three times as long, in the order of :func:`configs`."""
    found = [line for line in lines if line["stage"] == LONG and line["outcome"] == OK]
    return sorted(found, key=lambda line: (_layers(line["config"]), line["config"]))


def long_table(lines: Sequence[Line]) -> str:
    """The cells that are trained three times as long, each below its training of the same seed to the end."""
    rows = [["", "updates", "valid", "at half", "last tenth, %", "BLEU", "average", "chrF", "multi30k", "bootstrap p"]]
    for longest in longer(lines):
        cell = longest["config"], longest["seed"]
        for line in (*(line for line in lines if _full(line) and (line["config"], line["seed"]) == cell), longest):
            falls = [f"{at(line, 0.5):.3f}", f"{last_tenth(line):.2f}"]
            scores = [f"{float(line[score]):.1f}" for score in SCORES]
            rows.append([_named(cell[0]), line["updates"], line["valid"], *falls, *scores, line["p_test"]])
    return markdown_table(rows)


def against_baseline(lines: Sequence[Line], depth: str, column: str) -> dict[str, float]:
    """Welch's p-values of the methods of a depth against the baseline, with Holm's correction over the methods.

    Those with fewer seeds belong to no hypothesis, and would make the test of the others stricter.
    """
    cells = trained(lines, f"_{depth}")
    base = cells.pop(f"{BASELINE}_{depth}", [])
    return holm({config: over_seeds(found, base, column) for config, found in cells.items() if len(found) >= SEEDS})


COMPARED = (
    ("H2: depth pays for Admin", "admin_18e18d", "admin_6e6d", "valid"),
    ("H2: depth pays for B2T", "b2t_18e18d", "b2t_6e6d", "valid"),
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
    """What the trainings say of the hypotheses of the protocol, by Welch's tests over the seeds.

    Holm's correction is that of the results where a method is tested against the baseline of its depth, else over the
    methods of the hypothesis.
    """
    ended = trained([line for line in lines if line["outcome"] == OK])
    corrected: dict[str, float] = {}
    for hypothesis in ("H2", "H4", "H5"):
        mine = [row for row in COMPARED if row[0].startswith(hypothesis)]
        corrected |= holm({name: over_seeds(ended.get(a, []), ended.get(b, []), column) for name, a, b, column in mine})
    tested = against_baseline(lines, "18e18d", "bleu_test")
    corrected |= {name: tested[a] for name, a, _, _ in COMPARED if name.startswith("H3") and a in tested}
    post = [line for line in lines if line["config"] == "post_ln_18e18d"]
    learnt = [float(line["valid"]) for line in post if line["outcome"] == OK]
    swept = sum(line["stage"] == "sweep" for line in post)
    failed = "refuted" if learnt else "supported" if swept == RATES else "open"
    measured = f"{len(learnt)} of {len(post)} trainings have learnt"
    measured += f", the best {min(learnt):.3f} bits" if learnt else ""
    rows = [["hypothesis", "measured", "p", "verdict"], ["H1: Post-LN fails at 18-18", measured, "", failed]]
    for name, ours, theirs, column in COMPARED:
        unit, form = ("bits", ".3f") if column == "valid" else ("BLEU", ".1f")
        if not ended.get(ours) and (tried := [line for line in lines if line["config"] == ours and _full(line)]):
            rows.append([name, f"{len(tried)} trainings to the end have failed", "", "refuted"])
            continue
        if not (ended.get(ours) and ended.get(theirs)):
            rows.append([name, "not trained yet", "", "open"])
            continue
        means = [statistics.fmean(float(line[column]) for line in ended[config]) for config in (ours, theirs)]
        better = means[0] < means[1] if column == "valid" else means[0] > means[1]
        certain = corrected.get(name, 1.0) <= 0.05
        verdict = "refuted" if not better else "supported" if certain else "undecided"
        seeds = min(len(ended[ours]), len(ended[theirs]))
        verdict += f", {seeds} of {SEEDS} seeds" if seeds < SEEDS else ""
        rows.append([name, f"{means[0]:{form}} against {means[1]:{form}} {unit}", _p(corrected.get(name)), verdict])
    return markdown_table(rows)


def spread(lines: Sequence[Line], column: str, form: str) -> str:
    """Mean and standard deviation of a column."""
    values = [float(line[column]) for line in lines]
    return _mean(values, form) + (f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else "")


def curve(line: Line) -> tuple[Sequence[float], Sequence[float]]:
    """The updates and losses of all validations."""
    updates, losses = zip(*(map(float, point.split(":")) for point in line["curve"].split()), strict=True)
    return updates, losses


def at(line: Line, share: float) -> float:
    """The validation loss after a share of the updates, on a line between two validations."""
    updates, losses = curve(line)
    return float(np.interp(share * int(line["updates"]), updates, losses))


def last_tenth(line: Line) -> float:
    """By how many percent the validation loss falls over the last tenth of the updates."""
    return 100 * (1 - at(line, 1) / at(line, 0.9))


def to_goal(line: Line, clock: str) -> float | None:
    """Seconds of a CPU's clock until the validation loss is first ``GOAL``; None if it never is, or they are not known.

    ``clock`` is the column of the whole training's: ``processor_s`` or ``wall_s``.
    """
    updates, losses = curve(line)
    least = np.minimum.accumulate(losses)
    if least[-1] > GOAL or line["machine"] != "AMD EPYC" or not line[clock]:
        return None
    return float(np.interp(-GOAL, -least, updates)) / int(line["updates"]) * float(line[clock])


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


def _named(config: str) -> str:
    return f"`{_method(config)}` {_depth(config)}"


def _mean(values: Sequence[float], form: str) -> str:
    return f"{statistics.fmean(values):{form}}" if values else ""


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draw the validation losses of each depth, a band of one standard deviation over the seeds, and BLEU by depth.

    Methods of one seed are left out. A last picture has the losses of those that are trained three times as long.
    """
    pyplot = load_pyplot()
    assert pyplot is not None, NO_MATPLOTLIB
    full = [line for line in lines if _full(line) and line["outcome"] == OK]
    compared = {_method(line["config"]) for line in full if int(line["seed"]) == SEEDS}
    full = [line for line in full if _method(line["config"]) in compared]
    depths = sorted({_layers(line["config"]) for line in full})
    canvas, panels = pyplot.subplots(2, 3, figsize=(12.6, 7), layout="constrained")
    *axes, score, last, empty = panels.flat
    names = list(dict.fromkeys(_method(config) for config in configs(full)))
    bleu: dict[str, list[tuple[int, list[float]]]] = {name: [] for name in names}
    for axis, depth in zip(axes, depths, strict=True):
        of_depth = [config for config in configs(full) if _layers(config) == depth]
        for config in of_depth:
            found = [line for line in full if line["config"] == config]
            style, _, colour = look(names.index(_method(config)))
            curves = np.array([[at(line, share) for share in SHARES] for line in found])
            mean, band = curves.mean(axis=0), curves.std(axis=0, ddof=1) if len(found) > 1 else 0.0
            updates = SHARES * int(found[0]["updates"])
            axis.plot(updates, mean, linestyle=style, color=colour, label=_method(config))
            axis.fill_between(updates, mean - band, mean + band, color=colour, alpha=0.2, linewidth=0)
            bleu[_method(config)].append((depth, [float(line["bleu_test"]) for line in found]))
        axis.set(title=f"{_depth(of_depth[0])} layers", xlabel="updates", ylabel="bits per target token")
    for number, name in enumerate(names):
        style, marker, colour = look(number)
        places = [depth for depth, _ in bleu[name]]
        means = [statistics.fmean(scores) for _, scores in bleu[name]]
        spreads = [statistics.stdev(scores) if len(scores) > 1 else 0.0 for _, scores in bleu[name]]
        score.errorbar(places, means, spreads, linestyle=style, marker=marker, color=colour, capsize=3, label=name)
    score.set(title="test", xlabel="encoder layers", ylabel="BLEU", xticks=depths)
    for number, line in enumerate(longer(lines)):
        style, _, colour = look(number)
        label = f"{_method(line['config'])} {_depth(line['config'])}"
        last.plot(*curve(line), linestyle=style, color=colour, label=label)
    last.set(title="three times as long", xlabel="updates", ylabel="bits per target token")
    last.legend()
    empty.axis("off")
    empty.legend(*score.get_legend_handles_labels(), loc="center", ncols=2)
    save(canvas, path)


def _full(line: Line) -> bool:
    return line["stage"] == FULL


def _method(config: str) -> str:
    return config.rpartition("_")[0]


def _depth(config: str) -> str:
    return config.rpartition("_")[2].replace("e", "-").removesuffix("d")


def _layers(config: str) -> int:
    return int(config.rpartition("_")[2].partition("e")[0])


if __name__ == "__main__":
    draw(read(), RESULTS.with_suffix(".png"))
