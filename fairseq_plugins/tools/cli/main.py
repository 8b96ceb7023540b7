"""The table of commands, and the dispatch to one of them. A new command is one line in :data:`OWN`."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, NoReturn

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.process import at_once, exit_code, importing
from fairseq_plugins.tools.cli import stock


class Command(NamedTuple):
    """One word after ``fairseq-deep``: a line of the help, a module, and its runner if it has no ``main``."""

    summary: str
    module: str
    runner: Callable[[str, Any, Sequence[str]], int] | None = None


OWN = {
    "score": ("score translations: BLEU, chrF, TER, ROUGE, WER; compare systems", "tools.scoring.command"),
    "download": ("download an archive from one of several mirrors and verify its checksum", "tools.pipeline.download"),
    "prepare": ("prepare a corpus: tokenise, clean, split into subwords, binarise", "tools.pipeline.prepare"),
    "wmt": ("download WMT training texts and test sets", "tools.pipeline.wmt"),
    "demo": ("train several methods on a small corpus and compare them", "tools.demo.command"),
    "diagnose": ("analyse a method or a checkpoint as the papers do", "tools.observe.diagnostics.command"),
    "run": ("train a model from a YAML config in a run directory of its own; resume it", "tools.pipeline.run"),
    "evaluate": ("average checkpoints of a run, translate the test sets and score them", "tools.pipeline.evaluate"),
    "compare": ("train, evaluate and compare several YAML configs", "tools.pipeline.compare"),
    "reproduce": ("reproduce a published table, from raw text to a report", "tools.pipeline.reproduce"),
    "package": (
        "package a trained model, its dictionaries and preprocessing as a translator",
        "tools.translator.packaging",
    ),
    "translate": ("translate raw text with a package", "tools.translator.translate"),
    "export": (
        "convert a package for CTranslate2 or Hugging Face and check that both agree",
        "tools.translator.export",
    ),
    "fsck": ("find damaged checkpoints and the newest one to resume from", "checkpoints.fsck"),
    "report": ("print a table of the results of several runs", "tools.pipeline.report"),
    "average": ("average the weights of several checkpoints", "checkpoints.average"),
    "fold": ("convert a checkpoint to an equivalent stock fairseq checkpoint", "checkpoints.fold"),
}
COMMANDS: Mapping[str, Command] = {
    "train": Command("train a model", "fairseq_cli.train", stock.with_user_dir),
    "hydra-train": Command(
        "train a model from a YAML config by fairseq's Hydra program", "fairseq_plugins.tools.cli.hydra_train"
    ),
    "generate": Command("translate a binarised test set", "fairseq_cli.generate", stock.with_user_dir),
    "interactive": Command("translate lines of text", "fairseq_cli.interactive", stock.with_user_dir),
    "validate": Command("compute the loss on a binarised split", "fairseq_cli.validate", stock.with_user_dir),
    "eval-lm": Command("compute the perplexity of a language model", "fairseq_cli.eval_lm", stock.with_user_dir),
    "preprocess": Command("binarise a corpus", "fairseq_cli.preprocess", stock.plain),
    "stock-score": Command("compute BLEU with fairseq's own scorer", "fairseq_cli.score", stock.plain),
    **{name: Command(summary, f"fairseq_plugins.{module}") for name, (summary, module) in OWN.items()},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep`` with ``argv`` (default: the command line) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_code(lambda: _dispatch(arguments))


def run() -> NoReturn:
    """Run ``fairseq-deep`` as the console script and exit."""
    # A closed pipe (`| head`) ends a command at its next print; logging would add a trace for each line.
    logging.raiseExceptions = False
    sys.exit(main())


def _dispatch(argv: list[str]) -> int:
    if not argv:
        raise UserError(f"no command given; one of: {', '.join(COMMANDS)} (see fairseq-deep --help)")
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
    with at_once(), importing():
        module = import_module(command.module)
    code: int = command.runner(name, module, rest) if command.runner else module.main(rest)
    return code


def usage() -> str:
    """Return the text of ``fairseq-deep --help``."""
    width = max(map(len, COMMANDS)) + 2
    shown: dict[bool, list[str]] = {False: [], True: []}
    for name, command in COMMANDS.items():
        shown[name in OWN].append(f"  {name:<{width}}{command.summary}\n")
    return (
        "usage: fairseq-deep COMMAND [OPTION ...]\n\n"
        "fairseq's commands with the architectures of this package (no --user-dir needed):\n"
        f"{''.join(shown[False])}\ncommands of this package:\n{''.join(shown[True])}\n"
        "`fairseq-deep COMMAND --help` lists the options of a command."
    )
