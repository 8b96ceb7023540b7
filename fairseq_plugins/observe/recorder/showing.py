"""Output of entries: a line of the log, and fairseq's meters, which TensorBoard and Weights & Biases read.

A model of 60 layers has a thousand numbers. The meters hold them all under ``diagnostics/``; the progress bars that
print lines omit them, and the line of the log has the totals and, of each kind, the largest and the smallest.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from typing import Any

from fairseq.logging import metrics
from fairseq.logging.progress_bar import BaseProgressBar, JsonProgressBar

from fairseq_plugins.observe.recorder.entries import Entry, writable
from fairseq_plugins.patches.wrapping import wrap

logger = logging.getLogger(__name__)

PREFIX = "diagnostics/"


def log_metrics(entry: Entry) -> None:
    """Put the entry into fairseq's meters, the latest value of each name."""
    for name, value in entry.values.items():
        metrics.log_scalar(PREFIX + name, value, weight=0, priority=10000)


def summary(entry: Entry) -> dict[str, Any]:
    """Return the numbers without a place, and the largest and smallest of each kind with their places; four digits."""
    result: dict[str, Any] = {"update": entry.update, "applied": entry.applied}
    kinds: dict[str, dict[str, float]] = {}
    for name, value in entry.values.items():
        place, _, kind = name.rpartition("/")
        if place:
            kinds.setdefault(kind, {})[place] = value
        else:
            result[name] = writable(float(f"{value:.4g}"))
    for kind, places in kinds.items():
        # NaN is worse than any number.
        ranks = {place: math.inf if math.isnan(value) else value for place, value in places.items()}
        for what, choose in (("most", max), ("least", min)):
            place = choose(ranks, key=ranks.__getitem__)
            result[f"{kind}_{what}"] = [place, writable(float(f"{places[place]:.4g}"))]
    return result


def log_line(entry: Entry) -> None:
    """One line of the log, which is a JSON object."""
    logger.info(json.dumps(summary(entry), allow_nan=False))


def without_diagnostics(format_stats: Callable[..., Any], bar: Any, stats: Any, *args: Any, **kwargs: Any) -> Any:
    """``_format_stats``, which only the progress bars that print lines call, without the recorder's names."""
    kept = {name: value for name, value in stats.items() if PREFIX not in name}
    return format_stats(bar, kept, *args, **kwargs)


def install() -> None:
    """Keep the recorder's numbers out of progress lines; a second call changes nothing."""
    for bar in (BaseProgressBar, JsonProgressBar):
        wrap(bar, "_format_stats", without_diagnostics)
