"""The trainings behind a published table, as lines that a script reads: ``python -m fairseq_plugins.pipeline.rows``.

One line a training, its parts separated by ``|``: the configuration below ``configs/``, the seeds, the overrides, and
what makes it small where that is wanted. Rows of a table that differ only in the score they print are one training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.outcome import exit_code
from fairseq_plugins.pipeline.published import PublishedRow, rows_by_table
from fairseq_plugins.pipeline.smoke import smaller

SMOKE_ROWS = 2
"""Trainings of a table at toy size, which is there to show that the chain holds."""


class Wanted(NamedTuple):
    """One training of a table; ``seeds`` are the paper's."""

    config: str
    seeds: tuple[int, ...]
    overrides: tuple[str, ...]
    toy: tuple[str, ...] = ()

    @property
    def corpus(self) -> str:
        """The folder of the configuration."""
        return self.config.partition("/")[0]

    @property
    def line(self) -> str:
        """What a script reads."""
        seeds = " ".join(map(str, self.seeds))
        return "|".join([self.config, seeds, " ".join(self.overrides), " ".join(self.toy)])


def rows_of_table(paper: str, table: str) -> Sequence[PublishedRow]:
    """The rows of one table.

    Raises:
        UserError: there is no such table; the nearest legal name is in the message.
    """
    tables = rows_by_table()
    if (paper, table) not in tables:
        raise UserError(unknown_name("table", f"{paper} {table}", [" ".join(key) for key in tables]))
    return tables[paper, table]


def trainings(rows: Iterable[PublishedRow], only: Sequence[str] = ()) -> list[Wanted]:
    """The trainings of ``rows``, each once, in their order.

    Args:
        rows: of one table.
        only: corpora or configurations (``iwslt14_de_en``, ``admin_6e6d``, ``iwslt14_de_en/admin_6e6d``); all if empty.

    Raises:
        UserError: one of ``only`` is none of them.
    """
    all_of_them = [Wanted(*key) for key in dict.fromkeys((row.config, row.seeds, row.overrides) for row in rows)]
    names = {name for wanted in all_of_them for name in _names(wanted)}
    if problems := [unknown_name("row", name, names) for name in only if name not in names]:
        raise UserError(problems)
    return [wanted for wanted in all_of_them if not only or _names(wanted).intersection(only)]


def _names(wanted: Wanted) -> set[str]:
    return {wanted.config, wanted.corpus, wanted.config.partition("/")[2]}


def at_toy_size(wanted: Sequence[Wanted], configs: Path) -> list[Wanted]:
    """The first trainings with one seed each, their models and budgets small enough for a test."""
    return [
        one._replace(seeds=one.seeds[:1], toy=smaller(configs / f"{one.config}.yaml")) for one in wanted[:SMOKE_ROWS]
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the lines; 0, or 2 after one line for each problem."""
    flags = argparse.ArgumentParser(
        prog="python -m fairseq_plugins.pipeline.rows", description=__doc__.partition(":")[0]
    )
    flags.add_argument("paper", metavar="PAPER")
    flags.add_argument("table", metavar="TABLE")
    flags.add_argument("--only", nargs="*", default=[], metavar="NAME", help="corpora or configurations")
    flags.add_argument("--smoke", type=Path, metavar="CONFIGS", help="at toy size; the directory of the YAML files")
    args = flags.parse_args(argv)

    def show() -> None:
        wanted = trainings(rows_of_table(args.paper, args.table), args.only)
        for one in wanted if args.smoke is None else at_toy_size(wanted, args.smoke):
            print(one.line)

    return exit_code(show)


if __name__ == "__main__":
    sys.exit(main())
