"""``fairseq-deep demo``: train several methods on one corpus and compare them."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import yaml

from fairseq_plugins.demo import samples
from fairseq_plugins.demo.corpus import write_corpus
from fairseq_plugins.demo.recipe import configuration
from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.files import write_whole
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.pipeline.compare import How, compare, run_directory
from fairseq_plugins.pipeline.prepare import Preparation
from fairseq_plugins.pipeline.prepare_settings import Settings, sets_of
from fairseq_plugins.pipeline.progress import Screen, shown
from fairseq_plugins.pipeline.run import read_run
from fairseq_plugins.pipeline.workspace import Workspace
from fairseq_plugins.process import exit_code
from fairseq_plugins.processor import core_count

METHODS = ("post_ln", "pre_ln", "admin", "b2t", "dsinit_matt", "rezero")
"""Default of ``--methods``: the method that fails, and those of this package's first papers."""

ALL_METHODS = "all"
"""Value of ``--methods`` for every registered method."""

SENTENCES = 8000
"""Default number of training pairs of the embedded corpus."""

EMBEDDED_LANGUAGES = {"de", "en"}

VALID_NAMES = ("valid", "val", "dev")
NEXT_IN_README = "'From raw text to a score' in README.md"


def parser() -> OneLineParser:
    """Flags of ``fairseq-deep demo``; the defaults train on the embedded corpus."""
    flags = OneLineParser(
        prog="fairseq-deep demo", description="Train several methods on one corpus and compare what they learn."
    )
    data = flags.add_argument_group("text")
    data.add_argument("--data", type=Path, metavar="DIR", help="your own text files; default: the embedded corpus")
    data.add_argument("--source-lang", default="de", metavar="L")
    data.add_argument("--target-lang", default="en", metavar="L")
    data.add_argument("--train-prefix", metavar="NAME", help="file name without the language; default: train")
    data.add_argument("--valid-prefix", metavar="NAME", help="default: valid, val or dev, whichever exists")
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
        help=f"default: {','.join(METHODS)}; '{ALL_METHODS}' trains every method",
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
        help="trainings at a time; default: 2 with at least 2 cores, 1 on a GPU",
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
        ("--max-update", 700),
        ("--max-tokens", 256),
        ("--warmup-updates", 100),
        ("--save-interval", 50),
        ("--average", 4),
        ("--seed", 1),
    ):
        recipe.add_argument(option, type=int, default=default, help=f"default: {default}")
    for option, fraction in (
        ("--dropout", 0.0),
        ("--learning-rate", 1e-3),
        ("--label-smoothing", 0.1),
        ("--clip-norm", 0.0),
    ):
        recipe.add_argument(option, type=float, default=fraction, help=f"default: {fraction}")


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
    screen.say(f"{len(methods)} methods, {args.encoder_layers}-{args.decoder_layers} layers, results in {out}")
    data = _prepare(args, out)
    configs = [out / "configs" / f"{method}.yaml" for method in methods]
    for method, config in zip(methods, configs, strict=True):
        config.parent.mkdir(exist_ok=True)
        write_whole(config, yaml.safe_dump(configuration(method, args, cpu=cpu), sort_keys=False))
    runs = {method: run_directory(out, config, args.seed) for method, config in zip(methods, configs, strict=True)}
    parallel = min(len(methods), args.jobs or (min(2, core_count()) if cpu else 1))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, core_count() // parallel)))
    how = How(
        training=("--quiet", "--precision", "fp32"),
        evaluation=(f"--average=last-updates={args.average}",),
        parallel=parallel,
        output=out / "commands.log",
    )
    with shown(runs, screen):
        compare(data, out, configs, seeds=[args.seed], how=how, tell=screen.say)
    found = {method: read_run(directory) for method, directory in runs.items()}
    shown_samples = samples.blocks(data, (args.source_lang, args.target_lang), found)
    write_whole(out / "samples.md", samples.as_markdown(shown_samples))
    print(f"\n{samples.as_text(shown_samples)}\n")
    for line in _last_lines(args, out, samples.seen(found)):
        print(line)


def _prepare(args: Namespace, out: Path) -> Path:
    """The prepared directory."""
    if args.data is None:
        count = args.sentences or SENTENCES
        held_out = max(100, count // 40)
        workspace = Workspace(out / "corpus")
        with workspace.claimed():
            workspace.remember({"sentences": count})
            workspace.make(workspace.directory / "text", lambda place: _write_corpus(place, count, held_out))
        directory, names = workspace.directory / "text", ("train", "valid", "test")
    else:
        directory = args.data
        names = (args.train_prefix or "train", args.valid_prefix or _valid_name(args), args.test_prefix or "test")
    train, valid, test = (str(directory / name) for name in names)
    settings = Settings(
        source=args.source_lang,
        target=args.target_lang,
        clean="subwords",
        max_length=args.max_length,
        ratio=100,
        size=args.bpe_operations,
    )
    Preparation(out / "data", sets_of([train], [valid], [f"{samples.TEST}={test}"], [], []), settings).run()
    return out / "data"


def _write_corpus(place: Path, count: int, held_out: int) -> None:
    place.mkdir()
    write_corpus(place, count, held_out, held_out)


def _valid_name(args: Namespace) -> str:
    """The first of the usual names for which a validation set exists."""
    there = [name for name in VALID_NAMES if list(args.data.glob(f"{name}.{args.source_lang}*"))]
    return there[0] if there else VALID_NAMES[0]


def _last_lines(args: Namespace, out: Path, seen: str) -> list[str]:
    files = f"{out / 'report' / 'report.md'}, {out / 'report' / 'report.png'}, {out / 'samples.md'}"
    if args.data is None:
        following = "with your own text: make demo DATA=DIR SRC=de TGT=en; DIR holds train.de, train.en, valid.de, ..."
    else:
        following = f"{NEXT_IN_README}: training to convergence, on any number of GPUs"
    return [seen, f"Files: {files}", f"Next: {following}"]


def _checked(args: Namespace) -> tuple[tuple[str, ...], bool]:
    """The methods, and whether to train on the CPU.

    Raises:
        UserError: all problems with the flags.
    """
    methods = _methods(args.methods)
    problems = _number_problems(args) + _method_problems(methods) + _corpus_problems(args)
    if args.device == "gpu" and not _gpu_present():
        problems.append("--device gpu: there is no GPU that torch can use; legal here: auto, cpu")
    if args.data is not None and not args.data.is_dir():
        problems.append(f"{args.data}: no such directory of text files")
    if problems:
        raise UserError(problems)
    return methods, args.device == "cpu" or not _gpu_present()


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
    """Refuse flags that the chosen corpus would ignore."""
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
        return ["--methods is empty"]
    if set(METHODS).issuperset(methods):
        return []
    legal = {ALL_METHODS, *_registered_methods()}
    return [unknown_name("method", name, legal) for name in methods if name not in legal]


def _registered_methods() -> list[str]:
    """Every method of this package, the defaults first."""
    import fairseq_plugins  # noqa: F401
    from fairseq_plugins.core.method import METHODS as registered

    return list(registered)


def _gpu_present() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0, 2 for bad input, 130 when interrupted, or the code of a command that failed."""
    return exit_code(lambda: run(parser().read(argv)))


if __name__ == "__main__":
    sys.exit(main())
