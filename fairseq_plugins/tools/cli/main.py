"""The table of commands, and the dispatch to one of them. A new command is one line in :data:`COMMANDS`."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.process import at_once, exit_code, importing
from fairseq_plugins.tools.cli import stock


def own(name: str, module: Any, argv: Sequence[str]) -> int:
    """Run a command of this package: ``main(argv)`` of ``module``."""
    code: int = module.main(list(argv))
    return code


@dataclass(frozen=True)
class Command:
    """One word after ``fairseq-deep``.

    Args:
        summary: what it does, in one line of the help.
        module: the name of its module, imported when the command is run.
        runner: called with the command's name, its module and the arguments; returns the exit code.
    """

    summary: str
    module: str
    runner: Callable[[str, Any, Sequence[str]], int] = own


def ours(summary: str, module: str) -> Command:
    """Return a command of this package, whose name ``module`` leaves out."""
    return Command(summary, f"fairseq_plugins.{module}")


COMMANDS: Mapping[str, Command] = {
    "train": Command("train a model", "fairseq_cli.train", stock.train),
    "hydra-train": Command("train a model from a YAML file", "fairseq_cli.hydra_train", stock.hydra_train),
    "generate": Command("translate a binarised test set", "fairseq_cli.generate", stock.with_user_dir),
    "interactive": Command("translate lines of text", "fairseq_cli.interactive", stock.with_user_dir),
    "validate": Command("loss on a binarised split", "fairseq_cli.validate", stock.with_user_dir),
    "eval-lm": Command("perplexity of a language model", "fairseq_cli.eval_lm", stock.with_user_dir),
    "preprocess": Command("binarise a corpus", "fairseq_cli.preprocess", stock.plain),
    "stock-score": Command("BLEU of a translation, by fairseq's own scorer", "fairseq_cli.score", stock.plain),
    "score": ours("score translations: BLEU, chrF, TER, ROUGE, WER; compare systems", "tools.scoring.command"),
    "download": ours("download an archive, from mirrors, and check it", "tools.pipeline.download"),
    "prepare": ours("prepare a corpus: tokenise, clean, split into subwords, binarise", "tools.pipeline.prepare"),
    "wmt": ours("training texts and test sets of WMT by name", "tools.pipeline.wmt"),
    "demo": ours("train six methods, or any others, on a small corpus and compare them", "tools.demo.command"),
    "diagnose": ours("the papers' analyses of a method or a checkpoint", "tools.observe.diagnostics.command"),
    "run": ours("train a YAML file on this machine, in its own directory", "tools.pipeline.run"),
    "evaluate": ours("average, translate and score a training of run", "tools.pipeline.evaluate"),
    "compare": ours("train, evaluate and report several YAML files", "tools.pipeline.compare"),
    "reproduce": ours("reproduce a published table, from raw text to a report", "tools.pipeline.reproduce"),
    "package": ours("make one directory of a training that is the whole translator", "tools.translator.packaging"),
    "translate": ours("translate raw text with such a directory", "tools.translator.translate"),
    "export": ours("convert such a directory for CTranslate2 or Hugging Face, and prove it", "tools.translator.export"),
    "fsck": ours("check checkpoints, and say which one a training can continue from", "checkpoints.fsck"),
    "report": ours("results of trainings in one table", "tools.pipeline.report"),
    "average": ours("average the weights of several checkpoints", "checkpoints.average"),
    "fold": ours("turn a checkpoint into one of stock fairseq that computes the same", "checkpoints.fold"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep`` with ``argv`` (default: the command line) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_code(lambda: _dispatch(arguments))


def run() -> NoReturn:
    """The console script."""
    # A closed pipe (`| head`) ends a command at its next print; logging would add a trace for each line.
    logging.raiseExceptions = False
    sys.exit(main())


def _dispatch(argv: list[str]) -> int:
    if not argv:
        raise UserError(f"no command given; one of: {', '.join(COMMANDS)} (fairseq-deep --help says more)")
    name, *rest = argv
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name == "--version":
        try:
            print(f"fairseq-deep {version('fairseq-deep')}")
        except PackageNotFoundError:
            print("fairseq-deep (not installed)")
        return 0
    if name not in COMMANDS:
        raise UserError(f"unknown command '{name}'{nearest(name, list(COMMANDS))}; legal: {', '.join(COMMANDS)}")
    command = COMMANDS[name]
    _require_usable_surroundings()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", stock.CHATTER)
        with at_once(), importing():
            module = import_module(command.module)
        return command.runner(name, module, rest)


def _require_usable_surroundings() -> None:
    """Refuse what the libraries answer with lines about themselves: OpenMP, and torch in a deleted directory."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current directory has been deleted: change to another one") from None
    threads = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not all(number.strip().isdecimal() and int(number) > 0 for number in threads.split(",") if threads):
        raise UserError(f"OMP_NUM_THREADS={threads}: must be a whole number of at least 1")


def usage() -> str:
    """Return the text of ``fairseq-deep --help``."""
    width = max(map(len, COMMANDS)) + 2
    lines = {name: f"  {name:<{width}}{command.summary}" for name, command in COMMANDS.items()}
    return "\n".join(
        [
            "usage: fairseq-deep COMMAND [OPTION ...]",
            "",
            "fairseq's commands, with the architectures of this package; they need no --user-dir:",
            *(line for name, line in lines.items() if COMMANDS[name].runner is not own),
            "",
            "commands of this package:",
            *(line for name, line in lines.items() if COMMANDS[name].runner is own),
            "",
            "`fairseq-deep COMMAND --help` lists the options of a command.",
        ]
    )
