"""``fairseq-deep reproduce PAPER TABLE [NAME ...]``: the trainings of a published table, from raw text to a report.

Rows of a table that differ only in the printed score are one training. The scripts of a checkout prepare the corpora;
without a checkout, ``--data`` must hold them. The same command continues where it was stopped.
"""

import os
from argparse import Namespace
from collections.abc import Collection, Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.tools.pipeline import commands
from fairseq_plugins.tools.pipeline.checkout import checkout
from fairseq_plugins.tools.pipeline.compare import (
    CompareOptions,
    Training,
    add_options,
    report,
    require_slurm,
    run_directory,
    train_all,
)
from fairseq_plugins.tools.pipeline.corpus import test_sets
from fairseq_plugins.tools.pipeline.leaderboard import FROM_LOG
from fairseq_plugins.tools.pipeline.published import PublishedRow, rows_by_table
from fairseq_plugins.tools.pipeline.workspace import Workspace

LOSSES = (*FROM_LOG, "negative log-likelihood")
"""Printed quantities that need no evaluation."""


def trainings(rows: Sequence[PublishedRow], only: Sequence[str] = ()) -> list[PublishedRow]:
    """A row for each training of one table, in their order; a UserError if ``only`` has an unknown name.

    ``only`` are corpora or configurations (``iwslt14_de_en``, ``admin_6e6d``, ``iwslt14_de_en/admin_6e6d``), or several
    words with commas between them that all hold, such as the points of a sweep by the names of their directories.
    """
    first: dict[tuple[object, ...], PublishedRow] = {}
    words: dict[PublishedRow, set[str]] = {}
    for row in rows:
        if row is first.setdefault((row.config, row.seeds, row.overrides), row):
            place = run_directory(Path(), row.file, 0, row.overrides).parent
            words[row] = {row.config, *row.config.split("/"), *place.name.split(",")}
    chosen = {name: {row for row in words if words[row].issuperset(name.split(","))} for name in only}
    if problems := [unknown_name("row", name, set().union(*words.values())) for name in only if not chosen[name]]:
        raise UserError(problems)
    return [row for row in words if not only or any(row in matching for matching in chosen.values())]


# --- the corpora ----------------------------------------------------------------------------------------------------


def script_of(row: PublishedRow, place: Path) -> Path | None:
    """The script that prepares the text of ``row``; None if ``place`` holds the text; a UserError without either."""
    top = checkout()
    script = top / row.prepared_by.rpartition(" ")[2] if top else None
    if script is not None and script.is_file():
        return script
    if (place / "data-bin").is_dir():
        return None
    why = f"no script prepares {row.corpus}" if top else "the scripts that prepare corpora are in a checkout"
    raise UserError(
        f"{place}: no such directory, and {why}; prepare the text with fairseq-deep prepare, and give the directory "
        f"above {row.corpus} with --data"
    )


def evaluations(rows: Sequence[PublishedRow], prepared: Collection[str] | None) -> list[list[str]]:
    """Arguments for ``fairseq-deep evaluate``: the printed test sets, a call for each length penalty; none for losses.

    ``prepared`` are the names of the test sets that exist; None if unknown. Without a printed one, all are evaluated.
    """
    printed = dict.fromkeys(name for row in rows if row.metric not in LOSSES for name in row.test)
    penalties = rows[0].penalties
    calls: dict[str, list[str]] = {}
    for name in printed:
        if prepared is None or name in prepared:
            penalty = penalties.get(name)
            calls.setdefault("" if penalty is None else f"--length-penalty={penalty:g}", []).append(name)
    return [[*names, *filter(None, [flag])] for flag, names in calls.items()] or [[]] * bool(printed)


# --- the command ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep reproduce PAPER TABLE [NAME ...]``; the code of a command that failed passes through."""
    flags = OneLineParser(
        prog="fairseq-deep reproduce", description=(__doc__ or "").partition(": ")[2].replace("``", "")
    )
    flags.add_argument("paper", metavar="PAPER", help="a paper of docs/reproduction.md, such as Admin")
    flags.add_argument("table", metavar="TABLE", help="a table of the paper, such as 'Table 2'")
    only = (
        "a corpus, a configuration, or a point of a sweep, such as iwslt14_de_en, admin_6e6d or "
        "admin_6e6d_no_warmup,lr=0.0003; default: all"
    )
    add = flags.add_argument
    add("only", nargs="*", default=[], metavar="NAME", help=only)
    add("--out", type=Path, metavar="DIR", help="output directory; default: runs/PAPER_TABLE")
    add("--data", type=Path, metavar="DIR", help="directory of prepared corpora; default: OUT/data")
    add("--seeds", nargs="+", type=at_least(0), default=[], metavar="N", help="seeds to run; default: the paper's")
    read_how = add_options(flags)
    args = flags.read(argv)
    _reproduce(args, read_how(args))
    return 0


def _reproduce(args: Namespace, options: CompareOptions) -> None:
    tables = rows_by_table()
    if (args.paper, args.table) not in tables:
        raise UserError(unknown_name("table", f"{args.paper} {args.table}", [" ".join(key) for key in tables]))
    rows = tables[args.paper, args.table]
    wanted = trainings(rows, args.only)
    out = args.out or (checkout() or Path()) / "runs" / Path(rows[0].script).stem
    require_slurm(options.nodes)
    places = {row.corpus: (args.data or out / "data") / row.corpus for row in wanted}
    scripts = {row.corpus: script_of(row, places[row.corpus]) for row in wanted}
    runs: list[Path] = []
    with commands.interruptible(), Workspace(out, dry_run=options.dry_run).claimed():
        for corpus, data in places.items():
            of_corpus = [row for row in wanted if row.corpus == corpus]
            if script := scripts[corpus]:
                settings = dict(word.split("=") for word in of_corpus[0].prepared_by.split() if "=" in word)
                if corpus == "wmt16_en_de":  # Google's text is off the web; wmt16-raw is nearly the same
                    settings["VARIANT"] = os.environ.get("VARIANT") or settings["VARIANT"]
                commands.run(script, data, environment={**settings, "DRY_RUN": str(int(options.dry_run))})
            seeded: list[Training] = []
            for training in of_corpus:
                for seed in dict.fromkeys(args.seeds or training.seeds):
                    run = run_directory(out / corpus, training.file, seed, training.overrides)
                    seeded.append(Training(training.file, data, run, (f"common.seed={seed}", *training.overrides)))
            prepared = None if options.dry_run else {"valid", *(test_set.name for test_set in test_sets(data, []))}
            configs = {row.config for row in of_corpus}
            train_all(seeded, options, evaluations([row for row in rows if row.config in configs], prepared))
            runs += [training.run for training in seeded]
        report(runs, out, options)
