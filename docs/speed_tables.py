"""Tables of docs/training_speed.md, made of ``tests/recorded/launches.tsv`` and ``benchmarks/results/times.tsv``."""

import csv
from pathlib import Path

from fairseq_plugins.tables import markdown_table

ROOT = Path(__file__).resolve().parents[1]
PEAK = 700e12
"""Operations a second that products reach on an H200 in half precision."""
STEPS = (
    ("h200_step_fp16", 6, 512, 32000, 4096),
    ("h200_step_18", 18, 512, 4000, 3200),
    ("h200_step_100", 100, 256, 4000, 3200),
)
"""Measurement, layers on each side, width, vocabulary, and tokens of each side."""


def rows_of(path: str) -> list[dict[str, str]]:
    """The rows of a table of the repository."""
    with (ROOT / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def launches() -> str:
    """Launches of an update outside of graphs, and those in its graph; waits of the host, by depth and flags."""
    header = ["layers", "flags", "eager", "graphs: outside, inside", "host waits: eager, graphs"]
    rows = [
        [
            row["layers"],
            f"`{row['flags']}`",
            f"{int(row['eager']):,}",
            f"{int(row['outside of the graph']):,}, {int(row['in the graph']):,}",
            f"{row['eager waits']}, {row['waits outside']}",
        ]
        for row in rows_of("tests/recorded/launches.tsv")
    ]
    return markdown_table([header, *rows], numbers=False)


def on_gpu() -> str:
    """Stock fairseq's steps on a GPU: time, tokens, the share of the peak that their products need; methods beside."""
    header = ["stock fairseq, fp16", "ms a step", "tokens a second", "used", "`post_ln` to stock", "`admin` to stock"]
    times = rows_of("benchmarks/results/times.tsv")
    rows = []
    for measurement, layers, width, vocabulary, tokens in STEPS:
        found = {row["model"]: row for row in times if row["measurement"] == measurement}
        seconds = float(found["transformer"]["seconds"])
        # A layer has 12 matrices of width x width in the encoder and 16 in the decoder, and twice the work backwards.
        products = 3 * 2 * tokens * (28 * layers * width**2 + vocabulary * width)
        ratios = [
            "{wall} ({wall_low} to {wall_high})".format(**found[name]) if name in found else "not measured"
            for name in ("post_ln", "admin")
        ]
        size = f"{layers}-{layers}, width {width}, {tokens:,} tokens a side"
        used = f"{100 * products / seconds / PEAK:.1f} %"
        rows.append([size, f"{1000 * seconds:.0f}", f"{2 * tokens / seconds:,.0f}", used, *ratios])
    return markdown_table([header, *rows], numbers=False)
