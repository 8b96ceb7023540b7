"""``fairseq-deep demo``: train several methods on one corpus and compare them.

Each method is the configuration of ``recipe.yaml`` with its architecture; ``fairseq-deep compare`` does the rest.
"""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import yaml

from fairseq_plugins.demo import samples
from fairseq_plugins.demo.corpus import write_corpus
from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import write_whole
from fairseq_plugins.options import IntermixedParser, at_least
from fairseq_plugins.pipeline.compare import How, compare, run_directory
from fairseq_plugins.pipeline.configuration import CHANGE
from fairseq_plugins.pipeline.prepare import Preparation
from fairseq_plugins.pipeline.prepare_settings import Settings, sets_of
from fairseq_plugins.pipeline.progress import Screen, shown
from fairseq_plugins.pipeline.results import read_run
from fairseq_plugins.pipeline.workspace import Workspace
from fairseq_plugins.process import exit_code
from fairseq_plugins.processor import core_count

METHODS = ("post_ln", "pre_ln", "admin", "b2t", "dsinit_matt", "rezero")
"""Default of ``--methods``: the method that fails, and those of this package's first papers."""
ALL_METHODS = "all"
"""Value of ``--methods`` for every registered method."""
SENTENCES = 8000
"""Training pairs of the embedded corpus; a fortieth of them is the validation set, and as many are the test set."""
RECIPE = Path(__file__).with_name("recipe.yaml")
VALID_NAMES = ("valid", "val", "dev")
MAX_LENGTH, RATIO = 100, 100
"""Longest training sentence in subwords, and the largest ratio of the lengths of a pair."""


def parser() -> IntermixedParser:
    """Flags of ``fairseq-deep demo``; the defaults train on the embedded corpus."""
    flags = IntermixedParser(
        prog="fairseq-deep demo", description="Train several methods on one corpus and compare what they learn."
    )
    text = flags.add_argument_group("text")
    text.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="your own train.L, valid.L and test.L of both languages; default: the embedded corpus",
    )
    text.add_argument("--source-lang", default="de", metavar="L", help="default: de")
    text.add_argument("--target-lang", default="en", metavar="L", help="default: en")
    text.add_argument("--bpe-operations", type=at_least(1), default=1000, metavar="N", help="default: 1000")
    flags.add_argument("--out", type=Path, default=Path("demo-run"), metavar="DIR", help="results; default: demo-run")
    flags.add_argument(
        "--methods",
        default=",".join(METHODS),
        metavar="A,B,…",
        help=f"default: {','.join(METHODS)}; '{ALL_METHODS}' trains every method",
    )
    flags.add_argument("--seed", type=at_least(0), default=1, metavar="N", help="default: 1")
    flags.add_argument("--average", type=at_least(1), default=4, metavar="N", help="last checkpoints; default: 4")
    flags.add_argument(
        "--jobs",
        type=at_least(1),
        metavar="N",
        help="trainings at a time; default: 2 with at least 2 cores, 1 on a GPU",
    )
    flags.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    flags.add_argument(
        "changes",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="changes of the recipe, as optimization.max_update=1000 model.dropout=0.1",
    )
    return flags


def run(args: Namespace) -> None:
    """Prepare, train, evaluate, compare; finished stages are skipped.

    Raises:
        UserError: the flags or the text are wrong, or ``--out`` contains something else.
        SystemExit: a command failed and has printed its error.
    """
    methods, cpu = _checked(args)
    # Hide the warnings of libraries.
    logging.getLogger().setLevel(logging.WARNING)
    out: Path = args.out.resolve()
    screen = Screen()
    screen.say(f"{len(methods)} methods, results in {out}")
    data = _prepare(args, out)
    configs = [out / "configs" / f"{method}.yaml" for method in methods]
    for method, config in zip(methods, configs, strict=True):
        config.parent.mkdir(exist_ok=True)
        write_whole(config, configuration(method, args, cpu=cpu))
    directories = {config.stem: run_directory(out, config, args.seed) for config in configs}
    parallel = min(len(methods), args.jobs or (min(2, core_count()) if cpu else 1))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, core_count() // parallel)))
    how = How(
        training=("--quiet", "--precision", "fp32"),
        evaluation=(f"--average=last-updates={args.average}",),
        parallel=parallel,
        output=out / "commands.log",
    )
    with shown(directories, screen):
        compare(data, out, configs, args.changes, seeds=[args.seed], how=how, tell=screen.say)
    runs = {method: read_run(directory) for method, directory in directories.items()}
    blocks = samples.blocks(data, (args.source_lang, args.target_lang), runs)
    print(f"\n{samples.as_text(blocks)}\n")
    print(samples.seen(runs))
    print(f"Files: {out / 'report' / 'report.md'}, {out / 'report' / 'report.png'}")


def configuration(method: str, args: Namespace, *, cpu: bool) -> str:
    """The YAML file of ``method``, whose architecture is ``<method>_transformer``; ``cpu``: even if there is a GPU."""
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    recipe["common"]["cpu"] = cpu
    recipe["task"].update(source_lang=args.source_lang, target_lang=args.target_lang)
    recipe["model"]["_name"] = f"{method}_transformer"
    recipe["checkpoint"]["keep_interval_updates"] = args.average
    return yaml.safe_dump(recipe, sort_keys=False)


def _prepare(args: Namespace, out: Path) -> Path:
    """The prepared directory."""
    valid = "valid"
    if args.data is None:
        workspace = Workspace(out / "corpus")
        directory = workspace.directory / "text"
        with workspace.claimed():
            workspace.remember({"sentences": SENTENCES})
            workspace.make(directory, lambda place: write_corpus(place, SENTENCES, SENTENCES // 40, SENTENCES // 40))
    else:
        directory = args.data
        there = [name for name in VALID_NAMES if list(directory.glob(f"{name}.{args.source_lang}*"))]
        valid = (there or VALID_NAMES)[0]
    train, valid, test = (str(directory / name) for name in ("train", valid, "test"))
    settings = Settings(
        source=args.source_lang,
        target=args.target_lang,
        clean="subwords",
        max_length=MAX_LENGTH,
        ratio=RATIO,
        size=args.bpe_operations,
    )
    Preparation(out / "data", sets_of([train], [valid], [f"{samples.TEST}={test}"], [], []), settings).run()
    return out / "data"


def _checked(args: Namespace) -> tuple[tuple[str, ...], bool]:
    """The methods, and whether to train on the CPU.

    Raises:
        UserError: all problems with the flags.
    """
    import torch

    named = [name.strip() for name in args.methods.split(",") if name.strip()]
    registered: list[str] = []
    if not set(METHODS).issuperset(named):
        import fairseq_plugins  # noqa: F401
        from fairseq_plugins.core.method import METHODS as known

        registered = list(known)
    methods = dict.fromkeys(method for name in named for method in (registered if name == ALL_METHODS else [name]))
    legal = {ALL_METHODS, *METHODS, *registered}
    problems = [unknown_name("method", name, legal) for name in methods if name not in legal]
    problems += [] if methods else ["--methods is empty"]
    problems += [f"unexpected: '{word}' is not KEY=VALUE" for word in args.changes if not CHANGE.fullmatch(word)]
    if args.data is not None and not args.data.is_dir():
        problems.append(f"{args.data}: no such directory of text files")
    if args.data is None and {args.source_lang, args.target_lang} != {"de", "en"}:
        languages = f"{args.source_lang}-{args.target_lang}"
        problems.append(f"the embedded corpus is de-en or en-de, not {languages}; give your own files with --data")
    gpu = torch.cuda.is_available()
    if args.device == "gpu" and not gpu:
        problems.append("--device gpu: there is no GPU that torch can use; legal here: auto, cpu")
    if problems:
        raise UserError(problems)
    return tuple(methods), args.device == "cpu" or not gpu


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0, 2 for bad input, 130 when interrupted, or the code of a command that failed."""
    return exit_code(lambda: run(parser().read(argv)))


if __name__ == "__main__":
    sys.exit(main())
