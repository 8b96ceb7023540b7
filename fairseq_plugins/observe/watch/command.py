"""``fairseq-deep watch LOG ...``: losses, gradient norms and loss scales of trainings, while they run or afterwards.

LOG is a log of ``--log-format json``, a directory with a train.log, or one with such directories below it.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError, flag
from fairseq_plugins.files import write_whole
from fairseq_plugins.observe.diagnostics import plots
from fairseq_plugins.observe.watch.logs import Watch
from fairseq_plugins.observe.watch.spikes import DEVIATIONS, WINDOW
from fairseq_plugins.observe.watch.summary import NAME, Summary, as_csv, as_json, figure, table
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.pipeline.progress import Screen


def parser() -> OneLineParser:
    """Return the parser of ``fairseq-deep watch``."""
    flags = OneLineParser(prog="fairseq-deep watch", description=(__doc__ or "").partition(": ")[2], allow_abbrev=False)
    flags.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="a log, a run, or a directory of runs")
    add = flags.add_argument
    add(
        "--output",
        type=Path,
        default=Path(NAME),
        metavar="DIR",
        help=f"for {NAME}.csv, .json, .png, .pdf; default: {NAME}",
    )
    add("--follow", action="store_true", help="keep going until every run has ended")
    add("--every", type=float, default=5.0, metavar="SECONDS", help="time between two reads of the logs; default: 5")
    add(
        "--draw-every",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="minimum time between two writes of the files; default: 60",
    )
    add(
        "--spike-window",
        type=int,
        default=WINDOW,
        metavar="N",
        help=f"records that a gradient norm is compared with; default: {WINDOW}",
    )
    add(
        "--spike-deviations",
        type=float,
        default=DEVIATIONS,
        metavar="K",
        help=f"a spike is above their mean + K standard deviations; default: {DEVIATIONS:g}",
    )
    return flags


def read(argv: Sequence[str] | None) -> Namespace:
    """Read the command line.

    Raises:
        UserError: an unknown option, or a value out of range.
    """
    args = parser().read(argv)
    for name in ("every", "draw_every", "spike_deviations"):
        value = getattr(args, name)
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"{flag(name)} must be a number above 0, not {value:g}")
    if args.spike_window < 2:
        raise UserError(f"--spike-window must be at least 2, not {args.spike_window}")
    return args


def write(summaries: Sequence[Summary], directory: Path) -> list[Path]:
    """Write the numbers, then the pictures.

    Returns:
        The written files.

    Raises:
        UserError: they cannot be written.
    """
    files = [directory / f"{NAME}.csv", directory / f"{NAME}.json"]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(files[0], as_csv(summaries))
        write_whole(files[1], as_json(summaries))
        return files + (plots.draw(figure(summaries), directory) if plots.available() else [])
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {(error.strerror or str(error)).lower()}") from error


class Session:
    """One call of the command: the watched logs and the screen."""

    def __init__(self, args: Namespace, screen: Screen) -> None:
        self._args = args
        self._watch = Watch(args.logs)
        self._screen = screen
        self._said: dict[str, str] = {}
        self._ended: set[str] = set()
        self._written = -math.inf

    def look(self) -> list[Summary]:
        """Read the new records of every log."""
        args = self._args
        found = self._watch.poll()
        return [Summary(each.name, run, args.spike_window, args.spike_deviations) for each, run in found]

    def follow(self) -> list[Summary]:
        """Show the logs until every run has ended.

        Returns:
            The runs at their ends.
        """
        while True:
            summaries = self.look()
            self._show(summaries)
            if all(one.ended for one in summaries):
                self._screen.show([])
                return summaries
            if time.monotonic() - self._written >= self._args.draw_every:
                write(summaries, self._args.output)
                self._written = time.monotonic()
            time.sleep(self._args.every)

    def _show(self, summaries: Sequence[Summary]) -> None:
        """Redraw the table in place; if the screen cannot do that, print a line for each run with new records."""
        self._screen.show(table(summaries))
        for one in summaries:
            line = one.line()
            if not self._screen.live and line != self._said.get(one.name):
                self._screen.say(line)
            self._said[one.name] = line
            if one.ended and one.name not in self._ended:
                self._ended.add(one.name)
                self._screen.say(one.ending())


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and write the files; 0.

    Raises:
        UserError: an unknown option, a missing path, or a file that is not a log.
    """
    args = read(argv)
    session = Session(args, Screen())
    summaries = session.follow() if args.follow else session.look()
    files = write(summaries, args.output)
    print("\n".join(table(summaries)))
    print(", ".join(map(str, files)))
    if not plots.available():
        print(plots.NO_MATPLOTLIB)
    return 0
