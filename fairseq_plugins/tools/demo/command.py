"""``fairseq-deep demo``: train several methods on one corpus and compare them.

Each method is the configuration of ``recipe.yaml`` with its architecture; ``fairseq-deep compare`` does the rest.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import yaml

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import write_whole
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.process import exit_code, importing
from fairseq_plugins.processor import core_count
from fairseq_plugins.tools.demo.corpus import write_corpus
from fairseq_plugins.tools.pipeline.compare import CompareOptions, compare
from fairseq_plugins.tools.pipeline.configuration import CHANGE
from fairseq_plugins.tools.pipeline.prepare import Preparation
from fairseq_plugins.tools.pipeline.prepare_settings import PrepareSettings, sets_of
from fairseq_plugins.tools.pipeline.workspace import Workspace, say

METHODS = ("post_ln", "pre_ln", "admin", "b2t", "dsinit_matt", "rezero")
"""Default of ``--methods``: the method that fails, and the methods of this package's first papers."""
SENTENCES = 8000
"""Training pairs of the embedded corpus; a fortieth of them is the validation set, and as many are the test set."""
MERGES = 1000
RECIPE = Path(__file__).with_name("recipe.yaml")
PARALLEL = 2
"""Trainings at a time; they share the cores."""


def parser() -> OneLineParser:
    """Flags of ``fairseq-deep demo``."""
    flags = OneLineParser(
        prog="fairseq-deep demo",
        description="Train several methods on an embedded German-English corpus and compare what they learn.",
    )
    flags.add_argument("--out", type=Path, default=Path("demo-run"), metavar="DIR", help="results")
    flags.add_argument("--methods", default=",".join(METHODS), metavar="A,B,…", help="methods; all: every method")
    flags.add_argument("--seed", type=at_least(0), default=1, metavar="N", help="seed of the trainings")
    flags.add_argument(
        "changes",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="changes to the recipe, for example optimization.max_update=1000 model.dropout=0.1",
    )
    return flags


def run(args: Namespace) -> None:
    """Prepare, train, evaluate, compare; finished stages are skipped."""
    methods = checked_methods(args)
    # Hide the warnings of libraries.
    logging.getLogger().setLevel(logging.WARNING)
    out: Path = args.out.resolve()
    say(f"{len(methods)} methods; translations: {out}/METHOD/seed{args.seed}/evaluation/test/hypotheses.txt")
    data = prepare(out)
    configs = [out / "configs" / f"{method}.yaml" for method in methods]
    for method, config in zip(methods, configs, strict=True):
        config.parent.mkdir(exist_ok=True)
        write_whole(config, configuration(method))
    parallel = min(len(methods), PARALLEL, core_count())
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, core_count() // parallel)))
    options = CompareOptions(
        training=("--quiet", "--precision", "fp32"), evaluation=("--average=last-updates=4",), parallel=parallel
    )
    compare(data, out, configs, args.changes, [args.seed], options)


def configuration(method: str) -> str:
    """Return the YAML file of ``method``, whose architecture is ``<method>_transformer``."""
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    recipe["model"]["_name"] = f"{method}_transformer"
    return yaml.safe_dump(recipe, sort_keys=False)


def prepare(out: Path) -> Path:
    """Write the embedded corpus and return the prepared directory."""
    workspace = Workspace(out / "corpus")
    directory = workspace.directory / "text"
    with workspace.claimed([("sentences", SENTENCES)]):
        workspace.make(directory, lambda place: write_corpus(place, SENTENCES, SENTENCES // 40, SENTENCES // 40))
    train, valid, test = (str(directory / name) for name in ("train", "valid", "test"))
    settings = PrepareSettings(clean="subwords", max_length=100, ratio=100, size=MERGES)
    Preparation(out / "data", sets_of([train], [valid], [f"test={test}"], [], []), settings).run()
    return out / "data"


def checked_methods(args: Namespace) -> list[str]:
    """Return the methods to train, or a UserError with all problems of the flags."""
    with importing():
        from fairseq_plugins.core.method import METHODS as registered
    named = [name.strip() for name in args.methods.split(",") if name.strip()]
    methods = dict.fromkeys(method for name in named for method in (registered if name == "all" else [name]))
    problems = [unknown_name("method", name, ["all", *registered]) for name in methods if name not in registered]
    problems += [] if methods else ["--methods is empty"]
    problems += [f"unexpected: '{word}' is not KEY=VALUE" for word in args.changes if not CHANGE.fullmatch(word)]
    if problems:
        raise UserError(problems)
    return list(methods)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0, 2 for bad input, 130 when interrupted, or the code of a command that failed."""
    return exit_code(lambda: run(parser().read(argv)))
