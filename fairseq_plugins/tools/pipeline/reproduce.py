"""``fairseq-deep reproduce PAPER TABLE [NAME ...]``: the trainings of a published table, from raw text to a report.

Rows of a table that differ only in the printed score are one training. The scripts of a checkout prepare the corpora;
without a checkout, ``--data`` must hold them. The same command continues where it was stopped.
"""

import os
import runpy
import shlex
from argparse import ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.options import ScriptParser, at_least
from fairseq_plugins.tools.pipeline import commands, evaluate
from fairseq_plugins.tools.pipeline.checkout import CONFIGS, checkout
from fairseq_plugins.tools.pipeline.commands import interruptible
from fairseq_plugins.tools.pipeline.compare import (
    CompareOptions,
    Training,
    add_options,
    report,
    require_slurm,
    run_directory,
    train_all,
)
from fairseq_plugins.tools.pipeline.decoding import test_sets
from fairseq_plugins.tools.pipeline.published import PublishedRow, rows_by_table
from fairseq_plugins.tools.pipeline.workspace import Workspace


class Wanted(NamedTuple):
    """One training of a table, with the seeds of the paper and the overrides of its row."""

    config: str
    seeds: tuple[int, ...]
    overrides: tuple[str, ...]

    @property
    def corpus(self) -> str:
        """The folder of the configuration."""
        return self.config.partition("/")[0]

    @property
    def file(self) -> Path:
        """The YAML file."""
        return CONFIGS / f"{self.config}.yaml"

    @property
    def words(self) -> set[str]:
        """The words that may select it: its configuration, the parts of that, and the parts of its run's directory."""
        place = run_directory(Path(), self.file, 0, self.overrides).parent
        return {self.config, *self.config.split("/"), *place.name.split(",")}

    def recipe(self) -> Mapping[str, Mapping[str, Any]]:
        """The content of the YAML file."""
        return dict(yaml.safe_load(self.file.read_text(encoding="utf-8")))


def trainings(rows: Sequence[PublishedRow], only: Sequence[str] = ()) -> list[Wanted]:
    """The trainings of the rows of one table, each once, in their order; a UserError if ``only`` has an unknown name.

    ``only`` are corpora or configurations (``iwslt14_de_en``, ``admin_6e6d``, ``iwslt14_de_en/admin_6e6d``), or several
    words with commas between them that all hold, such as the points of a sweep by the names of their directories.
    """
    wanted = [Wanted(*key) for key in dict.fromkeys((row.config, row.seeds, row.overrides) for row in rows)]
    chosen = {name: [one for one in wanted if one.words.issuperset(name.split(","))] for name in only}
    legal = set().union(*(training.words for training in wanted))
    if problems := [unknown_name("row", name, legal) for name, found in chosen.items() if not found]:
        raise UserError(problems)
    return [training for training in wanted if not only or any(training in found for found in chosen.values())]


# --- toy size -------------------------------------------------------------------------------------------------------

UPDATES = 24
NOTE = (
    f"toy size: this tests the chain only; after {UPDATES} updates every training fails, and scores near 0 are expected"
)
"""For a report, so that nobody takes its numbers for results."""
SIZES: Mapping[str, Any] = {
    "_layers": 2,
    "_ffn_embed_dim": 64,
    "_embed_dim": 32,
    "_output_dim": 32,
    "_input_dim": 32,
    "_attention_heads": 2,
    "_cutoff": "'20,40'",
}
"""Sizes of the model, by the end of a setting's name; the first match counts."""
BUDGET: Mapping[str, Any] = {
    "optimization.max_update": UPDATES,
    "optimization.max_epoch": 0,
    "optimization.update_freq": "[1]",
    "dataset.max_tokens": 600,
    "dataset.num_workers": 0,
    "checkpoint.save_interval_updates": 4,
    "checkpoint.keep_interval_updates": 2,
}
WHERE_SET: Mapping[str, Any] = {
    "task.tokens_per_sample": 64,
    "lr_scheduler.warmup_updates": 4,
    "lr_scheduler.total_num_update": UPDATES,
    "lr_scheduler.lr_period_updates": UPDATES,
    "eval_lm.context_window": 16,
    "dataset.batch_size": "null",
}
"""Only overridden where they are set: a schedule may have no warm-up, and a batch no number of sentences."""


def smaller(recipe: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Hydra overrides with which the whole chain of a recipe takes seconds on a CPU.

    Method, optimizer, schedule, criterion, shared embeddings and decoding stay; only sizes and budgets shrink.
    """
    sizes = {name: [size for end, size in SIZES.items() if name.endswith(end)] for name in recipe["model"]}
    overrides = {f"model.{name}": fitting[0] for name, fitting in sizes.items() if fitting} | dict(BUDGET)
    configured = {f"{group}.{name}" for group, values in recipe.items() for name in values or {}}
    overrides |= {name: value for name, value in WHERE_SET.items() if name in configured}
    return [f"{name}={value}" for name, value in overrides.items()]


def of_each_method(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The first training of each method on the first corpus, with one seed: enough to test the chain of a table."""
    methods: dict[str, Wanted] = {}
    for training in wanted:
        if training.corpus == wanted[0].corpus:
            methods.setdefault(training.recipe()["model"]["_name"], training._replace(seeds=training.seeds[:1]))
    return list(methods.values())


def small_archives(corpus: str, place: Path) -> dict[str, str]:
    """Write small archives with the published layout; return the settings of a preparation from them."""
    # Without a checkout no script prepares archives.
    write = runpy.run_path(str((checkout() or Path()) / "tests" / "scripts" / "archives.py"))["write_archives"]
    Workspace(place.parent).make(place, lambda target: write(corpus, target))
    # A hundredth of so few pairs would be empty, and the known checksums belong to the published files.
    valid = os.environ.get("VALID") or "newstest2013"
    return {"VALID": valid, "ARCHIVE_DIR": str(place), "CHECKSUMS": os.devnull}


# --- the corpora ----------------------------------------------------------------------------------------------------


def script_of(corpus: str, place: Path) -> Path | None:
    """The script that prepares a corpus; None if ``place`` holds the prepared corpus; a UserError without either."""
    top = checkout()
    # Google's text is one of those that papers call WMT'14.
    name = "wmt14_en_de" if corpus == "wmt16_en_de" else corpus
    script = top / "scripts" / f"prepare_{name}.sh" if top else None
    if script is not None and script.is_file():
        return script
    if (place / "data-bin").is_dir():
        return None
    why = f"no script prepares {corpus}" if top else "the scripts that prepare corpora are in a checkout"
    raise UserError(
        f"{place}: no such directory, and {why}; prepare the text with fairseq-deep prepare, and give the directory "
        f"above {corpus} with --data"
    )


def of_prepared(evaluations: Sequence[Sequence[str]], data: Path) -> Sequence[Sequence[str]]:
    """Reduce evaluations (test sets, then flags) to the prepared test sets; if none of theirs was prepared, to all."""
    prepared = {"valid", *(test_set.name for test_set in test_sets(data, []))}
    kept = []
    for words in evaluations:
        flags = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
        sets = [word for word in words[:flags] if word in prepared]
        if sets or not flags:
            kept.append([*sets, *words[flags:]])
    return kept or [[]]


# --- the command ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep reproduce PAPER TABLE [NAME ...]``; the code of a command that failed passes through."""
    flags = ScriptParser(
        prog="fairseq-deep reproduce", description=(__doc__ or "").partition(": ")[2].replace("``", "")
    )
    flags.add_argument("paper", metavar="PAPER", help="a paper of docs/reproduction.md, such as Admin")
    flags.add_argument("table", metavar="TABLE", help="a table of the paper, such as 'Table 2'")
    only = (
        "a corpus, a configuration, or a point of a sweep, such as iwslt14_de_en, admin_6e6d or "
        "admin_6e6d_no_warmup,lr=0.0003; default: all"
    )
    prepare = "a setting of the script that prepares CORPUS, such as wmt14_en_de:VARIANT=admin"
    tests = "arguments for fairseq-deep evaluate; repeat for several calls; default: all test sets at once"
    smoke = (
        "test the whole chain at toy size in minutes on a CPU, with one training per method; needs --data unless "
        "the package runs from a checkout"
    )
    several: dict[str, Any] = {"action": "append", "default": []}
    add = flags.add_argument
    add("only", nargs="*", default=[], metavar="NAME", help=only)
    add("--out", type=Path, metavar="DIR", help="output directory; default: runs/PAPER_TABLE")
    add("--data", type=Path, metavar="DIR", help="directory of prepared corpora; default: OUT/data")
    add("--seeds", nargs="+", type=at_least(0), default=[], metavar="N", help="seeds to run; default: the paper's")
    add("--prepare", type=_setting, **several, metavar="CORPUS:NAME=VALUE", help=prepare)
    add("--evaluate", type=_evaluation, **several, metavar="'TEST_SET ... [OPTION ...]'", help=tests)
    add("--train-only", action="store_true", help="only train, for a table of losses")
    add("--smoke", action=BooleanOptionalAction, default=False, help=smoke)
    read_how = add_options(flags)
    args = flags.read(argv)
    if args.smoke:
        args.average = args.average or "last-updates=2"
        args.precision = "fp32" if args.precision == "auto" else args.precision
    _reproduce(args, read_how(args))
    return 0


def _evaluation(text: str) -> list[str]:
    words = shlex.split(text)
    evaluate.parser().read(["RUN", "DATA", *words])
    return words


def _setting(text: str) -> tuple[str, str, str]:
    corpus, _, setting = text.partition(":")
    name, equals, value = setting.partition("=")
    if not equals:
        raise ArgumentTypeError("not CORPUS:NAME=VALUE, for example wmt14_en_de:VARIANT=admin")
    return corpus, name, value


def _reproduce(args: Namespace, options: CompareOptions) -> None:
    tables = rows_by_table()
    if (args.paper, args.table) not in tables:
        raise UserError(unknown_name("table", f"{args.paper} {args.table}", [" ".join(key) for key in tables]))
    rows = tables[args.paper, args.table]
    wanted = trainings(rows, args.only)
    corpora = dict.fromkeys(row.config.partition("/")[0] for row in rows)
    if unknown := [unknown_name("corpus of --prepare", of, corpora) for of, _, _ in args.prepare if of not in corpora]:
        raise UserError(unknown)
    out = args.out or (checkout() or Path()) / "runs" / (Path(rows[0].script).stem + ("_smoke" if args.smoke else ""))
    if args.smoke:
        wanted = of_each_method(wanted)
    require_slurm(options.nodes)
    evaluations = [] if args.train_only else args.evaluate or [[]]
    corpora = dict.fromkeys(training.corpus for training in wanted)
    places = {corpus: (args.data or out / "data") / corpus for corpus in corpora}
    scripts = {corpus: script_of(corpus, place) for corpus, place in places.items()}
    workspace = Workspace(out, dry_run=options.dry_run)
    runs: list[Path] = []
    with interruptible(), workspace.claimed():
        workspace.remember({"smoke": int(args.smoke)})
        for corpus, data in places.items():
            if script := scripts[corpus]:
                small = {} if options.dry_run or not args.smoke else small_archives(corpus, out / "archives" / corpus)
                usual = {"VARIANT": os.environ.get("VARIANT") or "wmt16-google"} if corpus == "wmt16_en_de" else {}
                given = {name: value for of, name, value in args.prepare if of == corpus}
                dry_run = {"DRY_RUN": str(int(options.dry_run))}
                # The script skips finished stages.
                commands.run(script, data, environment={**usual, **small, **given, **dry_run})
            seeded: list[Training] = []
            for training in (training for training in wanted if training.corpus == corpus):
                sizes = smaller(training.recipe()) if args.smoke else ()
                for seed in dict.fromkeys(args.seeds or training.seeds):
                    run = run_directory(out / corpus, training.file, seed, training.overrides)
                    changes = (f"common.seed={seed}", *training.overrides, *sizes)
                    seeded.append(Training(training.file, data, run, changes))
            prepared = evaluations if options.dry_run or not any(evaluations) else of_prepared(evaluations, data)
            train_all(seeded, options, evaluations=prepared)
            runs += [training.run for training in seeded]
        report(runs, out, options, [NOTE] if args.smoke else [])
