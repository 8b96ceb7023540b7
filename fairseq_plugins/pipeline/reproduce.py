"""``fairseq-deep reproduce PAPER TABLE [NAME ...]``: the trainings of a published table, from raw text to a report.

Rows of a table that differ only in the printed score are one training. Each corpus is prepared by its script, so the
command needs the repository or a directory of prepared corpora. The same command continues where it was stopped.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.options import ScriptParser, at_least
from fairseq_plugins.pipeline.checkout import CONFIGS, checkout
from fairseq_plugins.pipeline.commands import Commands, interruptible
from fairseq_plugins.pipeline.compare import Options, Training, report, require_slurm, run_directory, train_all
from fairseq_plugins.pipeline.evaluate import test_sets
from fairseq_plugins.pipeline.published import PublishedRow, rows_by_table
from fairseq_plugins.pipeline.smoke import smaller
from fairseq_plugins.pipeline.workspace import Workspace
from fairseq_plugins.process import exit_code

SMOKE_ROWS = 2
"""Number of trainings of a table at toy size, which only tests the chain."""


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
        UserError: ``only`` contains an unknown name.
    """
    all_of_them = [Wanted(*key) for key in dict.fromkeys((row.config, row.seeds, row.overrides) for row in rows)]
    names = {name for wanted in all_of_them for name in _names(wanted)}
    if problems := [unknown_name("row", name, names) for name in only if name not in names]:
        raise UserError(problems)
    return [wanted for wanted in all_of_them if not only or _names(wanted).intersection(only)]


def _names(wanted: Wanted) -> set[str]:
    return {wanted.config, wanted.corpus, wanted.config.partition("/")[2]}


def at_toy_size(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The first trainings with one seed each, their models and budgets small enough for a test."""
    return [
        one._replace(seeds=one.seeds[:1], toy=smaller(CONFIGS / f"{one.config}.yaml")) for one in wanted[:SMOKE_ROWS]
    ]


# --- the corpora ----------------------------------------------------------------------------------------------------

SCRIPTS: Mapping[str, tuple[str, Mapping[str, str]]] = {"wmt16_en_de": ("wmt14_en_de", {"VARIANT": "wmt16-google"})}
"""Script and settings of a corpus whose script has another name. Google's text is one of the four that papers call
WMT'14."""
SMOKE: Mapping[str, str] = {"TEST_SETS": "newstest2014", "VALID": "newstest2013"}
"""Settings of a preparation at toy size: fewer test sets, and a validation set that is not empty with 500 pairs."""


def prepare(corpus: str, place: Path, settings: Mapping[str, str], *, dry_run: bool) -> None:
    """Prepare a corpus with its script, which skips finished stages.

    Args:
        corpus: the folder of its configurations.
        place: directory of the prepared corpus.
        settings: environment of the script.
        dry_run: the script only prints its commands.

    Raises:
        UserError: the corpus is missing, and no script prepares it.
        SystemExit: the script failed and has printed its error.
    """
    name, usual = SCRIPTS.get(corpus, (corpus, {}))
    top = checkout()
    script = top / "scripts" / f"prepare_{name}.sh" if top else None
    if script is not None and script.is_file():
        chosen = {key: os.environ.get(key) or value for key, value in usual.items()}
        Commands().run(script, place, environment={**chosen, **settings, "DRY_RUN": str(int(dry_run))})
    elif not (place / "data-bin").is_dir():
        raise UserError(
            f"{place}: no such directory, and no script {'here ' if top is None else ''}prepares {corpus}; prepare "
            "your own text with fairseq-deep prepare"
        )


def of_prepared(evaluations: Sequence[Sequence[str]], data: Path) -> Sequence[Sequence[str]]:
    """Reduce evaluations to the prepared test sets; if none of theirs was prepared, evaluate all that were.

    Args:
        evaluations: the test sets of each, then its flags.
        data: the prepared directory.
    """
    prepared = {"valid", *(each.name for each in test_sets(data, []))}
    kept = []
    for words in evaluations:
        sets = [word for word in words if word in prepared]
        flags = words[next((at for at, word in enumerate(words) if word.startswith("-")), len(words)) :]
        kept += [[*sets, *flags]] if sets else []
    return kept or [[]]


# --- the command ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Reproduce a table; 0, or the code of a command that failed, or 2 after one line for each problem."""
    return exit_code(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> None:
    flags = ScriptParser(prog="fairseq-deep reproduce", description=(__doc__ or "").partition(": ")[2])
    flags.add_argument("paper", metavar="PAPER", help="as in docs/reproduction.md: Admin")
    flags.add_argument("table", metavar="TABLE", help="as 'Table 2'")
    flags.add_argument(
        "only",
        nargs="*",
        default=[],
        metavar="NAME",
        help="a corpus or a configuration, as iwslt14_de_en or admin_6e6d; default: all",
    )
    flags.add_argument("--out", type=Path, metavar="DIR", help="results; default: runs/PAPER_TABLE")
    flags.add_argument("--data", type=Path, metavar="DIR", help="prepared corpora, to share them; default: OUT/data")
    flags.add_argument("--seeds", nargs="+", type=at_least(0), default=[], metavar="N", help="instead of the paper's")
    flags.add_argument(
        "--prepare",
        action="append",
        default=[],
        metavar="CORPUS:NAME=VALUE",
        help="a setting of the script that prepares CORPUS, as wmt14_en_de:VARIANT=admin",
    )
    flags.add_argument(
        "--evaluate",
        action="append",
        default=[],
        metavar="'TEST_SET ... [OPTION ...]'",
        help="arguments for fairseq-deep evaluate; repeat for several calls; default: all test sets at once",
    )
    flags.add_argument("--train-only", action="store_true", help="a table of losses: translate nothing")
    flags.add_argument(
        "--smoke",
        action=BooleanOptionalAction,
        default=False,
        help="the whole chain at toy size, on small generated archives: minutes on a CPU",
    )
    flags.add_argument("--smoke-sentences", type=at_least(1), default=400, metavar="N", help="default: 400")
    options = Options(flags)
    args = flags.read(argv)
    _reproduce(args, options)


def _reproduce(args: Namespace, options: Options) -> None:
    rows = rows_of_table(args.paper, args.table)
    wanted = trainings(rows, args.only)
    out = args.out or (checkout() or Path()) / "runs" / (Path(rows[0].script).stem + ("_smoke" if args.smoke else ""))
    if args.smoke:
        wanted = at_toy_size(wanted)
        args.average = args.average or "last-updates=2"
        args.precision = "fp32" if args.precision == "auto" else args.precision
    settings = _settings(args.prepare)
    how = options.read(args)
    require_slurm(how.nodes)
    evaluations = [] if args.train_only else [shlex.split(words) for words in args.evaluate or [""]]
    workspace = Workspace(out, dry_run=how.dry_run)
    runs: list[Path] = []
    with interruptible(), workspace.claimed():
        workspace.remember({"smoke": int(args.smoke)})
        for corpus in dict.fromkeys(one.corpus for one in wanted):
            data = (args.data or out / "data") / corpus
            archives = _archives(corpus, out, args.smoke_sentences, workspace) if args.smoke else {}
            prepare(corpus, data, {**archives, **settings.get(corpus, {})}, dry_run=how.dry_run)
            some = list(_of_corpus(corpus, wanted, data, out, args.seeds))
            named = evaluations if how.dry_run or not any(evaluations) else of_prepared(evaluations, data)
            train_all(some, how, evaluations=named)
            runs += [training.run for training in some]
        report(runs, out, "", how)


def _settings(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Settings of the preparations by corpus, from ``CORPUS:NAME=VALUE``."""
    settings: dict[str, dict[str, str]] = {}
    for words in given:
        corpus, _, setting = words.partition(":")
        name, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"--prepare {words}: expected CORPUS:NAME=VALUE, for example wmt14_en_de:VARIANT=admin")
        settings.setdefault(corpus, {})[name] = value
    return settings


def _of_corpus(
    corpus: str, wanted: Iterable[Wanted], data: Path, out: Path, seeds: Sequence[int]
) -> Iterable[Training]:
    for one in wanted:
        if one.corpus == corpus:
            config = CONFIGS / f"{one.config}.yaml"
            for seed in seeds or one.seeds:
                run = run_directory(out / corpus, config, seed, one.overrides)
                yield Training(config, data, run, (f"common.seed={seed}", *one.overrides, *one.toy))


def _archives(corpus: str, out: Path, sentences: int, workspace: Workspace) -> dict[str, str]:
    """Write small archives with the published layout; return the settings of a preparation from them."""
    place = out / "archives" / corpus
    words = (sys.executable, "-m", "fairseq_plugins.demo.archives", corpus)
    commands = Commands(dry_run=workspace.dry_run)
    workspace.make(place, lambda target: commands.run(*words, target, "--sentences", sentences))
    smaller_sets = {name: os.environ.get(name) or value for name, value in SMOKE.items()}
    # The known checksums are those of the published files.
    return {**smaller_sets, "ARCHIVE_DIR": str(place), "CHECKSUMS": os.devnull}


if __name__ == "__main__":
    sys.exit(main())
