"""``python -m fairseq_plugins.demo``: train several methods on one corpus and compare what they learn."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.demo.children import CommandFailed
from fairseq_plugins.demo.decoding import Search
from fairseq_plugins.demo.job import EmbeddedCorpus, Job, UserCorpus, run
from fairseq_plugins.demo.progress import Board
from fairseq_plugins.demo.text import TextSettings
from fairseq_plugins.demo.training import STOCK, Recipe
from fairseq_plugins.errors import EXIT_CODE, UserError, flag, report, unknown_name
from fairseq_plugins.options import OneLineParser

METHODS = ("post_ln", "pre_ln", "admin", "b2t", "dsinit_matt", "rezero")
"""What is compared by default: the method that fails, and those of the papers that this package began with."""

ALL_METHODS = "all"
"""Stands for every registered method in ``--methods``."""

SENTENCES = 8000
"""Training pairs of the embedded corpus, by default."""

EMBEDDED_LANGUAGES = {"de", "en"}

EXIT_INTERRUPTED = 130


def parser() -> OneLineParser:
    """Flags of the job; their defaults are the demonstration on the embedded corpus."""
    flags = OneLineParser(prog="fairseq-deep demo", description=__doc__.partition(": ")[2])
    data = flags.add_argument_group("text")
    data.add_argument("--data", type=Path, metavar="DIR", help="your own text files; default: the embedded corpus")
    data.add_argument("--source-lang", default="de", metavar="L")
    data.add_argument("--target-lang", default="en", metavar="L")
    data.add_argument("--train-prefix", metavar="NAME", help="file name without the language; default: train")
    data.add_argument("--valid-prefix", metavar="NAME", help="default: valid, val or dev, whichever is there")
    data.add_argument("--test-prefix", metavar="NAME", help="default: test")
    data.add_argument(
        "--sentences", type=int, metavar="N", help=f"training pairs of the embedded corpus; default: {SENTENCES}"
    )
    data.add_argument("--bpe-operations", type=int, default=1000, metavar="N", help="default: 1000")
    data.add_argument("--max-length", type=int, default=100, metavar="N", help="longest training sentence, in subwords")
    flags.add_argument("--out", type=Path, default=Path("demo-run"), metavar="DIR", help="results; default: demo-run")
    flags.add_argument(
        "--methods",
        default=",".join(METHODS),
        metavar="A,B,…",
        help=f"default: {','.join(METHODS)}; '{ALL_METHODS}' trains every method, '{STOCK}' is fairseq's own",
    )
    _add_recipe_flags(flags)
    search = flags.add_argument_group("translation")
    search.add_argument("--beam", type=int, default=4)
    search.add_argument("--length-penalty", type=float, default=1.0)
    machine = flags.add_argument_group("machine")
    machine.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="methods in work at a time; default: 2 where there are 2 cores, 1 on a GPU",
    )
    machine.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    return flags


def _add_recipe_flags(flags: argparse.ArgumentParser) -> None:
    recipe = flags.add_argument_group("model and training")
    for option, default in (
        ("--encoder-layers", 12),
        ("--decoder-layers", 12),
        ("--width", 64),
        ("--ffn-width", 128),
        ("--heads", 2),
        ("--max-update", 600),
        ("--max-tokens", 256),
        ("--warmup-updates", 100),
        ("--save-interval", 50),
        ("--average", 4),
        ("--seed", 1),
    ):
        recipe.add_argument(option, type=int, default=default, help=f"default: {default}")
    for option, fraction in (
        ("--dropout", 0.0),
        ("--learning-rate", 3e-3),
        ("--label-smoothing", 0.1),
        ("--clip-norm", 0.0),
    ):
        recipe.add_argument(option, type=float, default=fraction, help=f"default: {fraction}")


def job_of(args: argparse.Namespace) -> Job:
    """The job that the flags describe.

    Raises:
        UserError: with everything that is wrong with them.
    """
    methods = _methods(args.methods)
    problems = _number_problems(args) + _method_problems(methods) + _corpus_problems(args)
    if args.device == "gpu" and not _gpu_present():
        problems.append("--device gpu: there is no GPU that torch can use; legal here: auto, cpu")
    if problems:
        raise UserError(problems)
    gpu = args.device != "cpu" and _gpu_present()
    parallel = min(len(methods), args.jobs or (1 if gpu else min(2, _cores())))
    corpus: EmbeddedCorpus | UserCorpus
    if args.data is None:
        sentences = args.sentences or SENTENCES
        corpus = EmbeddedCorpus(sentences, valid=max(100, sentences // 40), test=max(100, sentences // 40))
    else:
        prefixes = {"train": args.train_prefix, "valid": args.valid_prefix, "test": args.test_prefix}
        corpus = UserCorpus(args.data, prefixes)
    return Job(
        corpus=corpus,
        languages=(args.source_lang, args.target_lang),
        out=args.out.resolve(),
        methods=methods,
        text=TextSettings(args.bpe_operations, args.max_length),
        recipe=_recipe_of(args),
        search=Search(args.beam, args.length_penalty),
        parallel=parallel,
        threads=max(1, _cores() // parallel),
        gpu=gpu,
    )


def _recipe_of(args: argparse.Namespace) -> Recipe:
    values: dict[str, Any] = {name: getattr(args, name) for name in Recipe.__dataclass_fields__}
    return Recipe(**values)


def _number_problems(args: argparse.Namespace) -> list[str]:
    positive = (
        "bpe_operations",
        "max_length",
        "encoder_layers",
        "decoder_layers",
        "width",
        "ffn_width",
        "heads",
        "max_update",
        "max_tokens",
        "save_interval",
        "average",
        "beam",
    )
    problems = [
        f"{flag(name)} must be at least 1, not {getattr(args, name)}" for name in positive if getattr(args, name) < 1
    ]
    problems += [
        f"{flag(name)} must be at least 1, not {getattr(args, name)}"
        for name in ("jobs", "sentences")
        if getattr(args, name) is not None and getattr(args, name) < 1
    ]
    problems += [
        f"{flag(name)} must be at least 0 and below 1, not {getattr(args, name)}"
        for name in ("dropout", "label_smoothing")
        if not 0 <= getattr(args, name) < 1
    ]
    if not args.learning_rate > 0:
        problems.append(f"--learning-rate must be above 0, not {args.learning_rate}")
    if args.heads > 0 and args.width % args.heads:
        problems.append(f"--width {args.width} is not a multiple of --heads {args.heads}")
    return problems


def _corpus_problems(args: argparse.Namespace) -> list[str]:
    """A flag that the chosen corpus would ignore is an error."""
    if args.data is not None:
        return [] if args.sentences is None else ["--sentences is for the embedded corpus; leave it out with --data"]
    problems = []
    if {args.source_lang, args.target_lang} != EMBEDDED_LANGUAGES:
        languages = f"{args.source_lang}-{args.target_lang}"
        problems.append(f"the embedded corpus is de-en or en-de, not {languages}; give your own files with --data")
    prefixes = ("train_prefix", "valid_prefix", "test_prefix")
    return problems + [f"{flag(name)} needs --data" for name in prefixes if getattr(args, name) is not None]


def _methods(names: str) -> tuple[str, ...]:
    named = [name.strip() for name in names.split(",") if name.strip()]
    every = _registered_methods() if ALL_METHODS in named else []
    return tuple(dict.fromkeys(method for name in named for method in (every if name == ALL_METHODS else [name])))


def _method_problems(methods: Sequence[str]) -> list[str]:
    if not methods:
        return ["--methods names none"]
    usual = {*METHODS, STOCK}
    if usual.issuperset(methods):
        return []
    legal = usual | {ALL_METHODS} | set(_registered_methods())
    return [unknown_name("method", name, legal) for name in methods if name not in legal]


def _registered_methods() -> list[str]:
    """Every method of this package, the usual ones and the others."""
    import fairseq_plugins  # noqa: F401
    from fairseq_plugins.core.method import METHODS as registered

    return list(registered)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu_present() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; 0, 1 where a method failed, 2 for bad input, 130 when interrupted."""
    args = parser().read(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    # The job has lines of its own; what libraries remark about themselves is not among them.
    logging.getLogger().setLevel(logging.WARNING)
    try:
        outcome = run(job_of(args), Board())
    except UserError as error:
        report(error)
        return EXIT_CODE
    except CommandFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ninterrupted; the same command continues from the last checkpoints in {args.out}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 1 if any(result.failed for result in outcome.results) else 0


if __name__ == "__main__":
    sys.exit(main())
