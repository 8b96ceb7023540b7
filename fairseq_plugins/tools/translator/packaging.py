"""``fairseq-deep package RUN OUT``: make one directory of a training that is the whole translator."""

import argparse
import logging
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from fairseq_plugins.checkpoints.fold import build
from fairseq_plugins.checkpoints.names import newest
from fairseq_plugins.checkpoints.provenance import refuse_other_text, trained_on
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import require_no_input, whole_directory
from fairseq_plugins.integrity import (
    architecture,
    configuration_of,
    num_updates,
    read_checkpoint,
    recorded,
    unchecked_content,
)
from fairseq_plugins.lines import read_lines
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.search.settings import GenerationConfigWithForm
from fairseq_plugins.sums import QUICK, require_sums
from fairseq_plugins.tools.pipeline.corpus import binarised, languages_of, test_sets, text_of
from fairseq_plugins.tools.pipeline.decoding import TRANSLATION, not_usual
from fairseq_plugins.tools.pipeline.results import AVERAGED, EVALUATION, Run, read_run
from fairseq_plugins.tools.pipeline.resume import finished
from fairseq_plugins.tools.pipeline.workspace import Workspace, settings_in
from fairseq_plugins.tools.text import moses
from fairseq_plugins.tools.text.description import FILE
from fairseq_plugins.tools.translator import package as packages
from fairseq_plugins.tools.translator.model import dictionaries_of, options_of, write_weights
from fairseq_plugins.tools.translator.package import MANIFEST, SEARCH, WEIGHTS
from fairseq_plugins.tools.translator.preprocessor import CODES, TRUECASER, VOCABULARY, Preprocessor, preprocessor_of

SAMPLE = 1000
"""Lines of a test set whose tokens are compared."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make the package; 0, or 2 after one line for each problem."""
    flags = OneLineParser(
        prog="fairseq-deep package",
        description="Make one directory that is a complete translator: weights, dictionaries, subwords and other steps "
        "of the preparation, search settings. fairseq-deep translate runs the directory on any machine.",
    )
    flags.add_argument(
        "run",
        type=Path,
        metavar="RUN",
        help="a directory of fairseq-deep run (its averaged.pt, else the newest checkpoint), or a checkpoint",
    )
    flags.add_argument("out", type=Path, metavar="OUT", help="the directory to make")
    flags.add_argument("--data", type=Path, metavar="DIR", help="the prepared directory (default: as RUN says)")
    flags.add_argument("--codes", type=Path, metavar="FILE", help="merges or sentencepiece model, if DIR has none")
    flags.add_argument("--truecaser", type=Path, metavar="FILE", help="Moses' model, for truecased text")
    flags.add_argument("--force", action="store_true", help="overwrite OUT if it is a package, with its exports")
    return exit_code(lambda: package(flags.read(argv)))


def package(args: argparse.Namespace) -> None:
    """Make the package; OUT appears when it is complete. A UserError says what is missing or contradicts the rest."""
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    packages.require_replaceable(args.out, args.force, MANIFEST)
    run = read_run(args.run) if args.run.is_dir() else None
    checkpoint: Path = checkpoint_of(run) if run else args.run
    state = read_checkpoint(checkpoint)
    config = configuration_of(state)
    task = config.get("task", {}).get("_name")
    if task != TRANSLATION:
        raise UserError(f"{checkpoint}: task '{task}' does not translate text")
    args.data = args.data or (run.data if run else None)
    if args.data is None:
        raise UserError(f"{args.run}: the training data are unknown; give --data DIR")
    require_no_input(args.out, [checkpoint, args.data])
    ending = finished(run.directory) if run else None
    if run and (ending is None or ending.reason):
        doubt = "its training has not finished" if ending is None else f"its training {ending.sentence()}"
        print(f"warning: {checkpoint}: {doubt}", file=sys.stderr)
    data_bin = binarised(args.data)
    require_sums(data_bin, *QUICK, "../*")
    source, target = languages_of(data_bin, config["task"])
    settings = settings_in(args.data)
    text = preprocessor_of((source, target), text_of(args.data), settings)
    files = files_of(args, text, settings)
    files |= {f"dict.{language}.txt": data_bin / f"dict.{language}.txt" for language in (source, target)}
    options = options_of(state, checkpoint)
    dictionaries = dictionaries_of(*(files[f"dict.{language}.txt"] for language in (source, target)))
    refuse_other_text(checkpoint, recorded(state), trained_on(dictionaries), data_bin)
    model = build(options, state["model"], dictionaries, checkpoint)
    search, defaults = config.get("generation", {}), GenerationConfigWithForm()
    if lost := sorted(not_usual(search).keys() - SEARCH.keys()):
        print(f"warning: a package does not keep generation.{', generation.'.join(lost)}", file=sys.stderr)
    content = {
        "format": packages.FORMAT,
        "text": asdict(text),
        "search": {name: kind(search.get(name, getattr(defaults, name))) for name, kind in SEARCH.items()},
        "positions": list(model.max_positions()),
        "updates": num_updates(state),
        "architecture": architecture(state),
        "model": options,
        "engines": {},
    }
    with whole_directory(args.out, overwrite=args.force) as directory:
        for name, path in files.items():
            shutil.copyfile(path, directory / name)
        if doubt := other_tokens(args.data, source, text.encoder(directory)):
            print(f"warning: {doubt}", file=sys.stderr)
        write_weights(state["model"], directory / WEIGHTS)
        (directory / WEIGHTS).chmod(0o644)  # safetensors writes mode 0600
        packages.write_manifest(directory, {**content, "files": packages.checksums(directory)})
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {source} to {target}, {checkpoint}, {size / 1e6:.1f} MB; fairseq-deep translate {args.out}")


def checkpoint_of(run: Run) -> Path:
    """Return the average of a run, or its newest checkpoint; a UserError for an average from before it went on."""
    if not (averaged := run.directory / AVERAGED).is_file():
        return newest(run.checkpoints)
    if any(run.checkpoints.glob("*.pt")):
        updates = num_updates(unchecked_content(newest(run.checkpoints)))
        Workspace(run.directory / EVALUATION).require([("updates", str(updates))], only={"updates"})
    return averaged


def other_tokens(data: Path, source: str, encode: Callable[[str], list[str]]) -> str:
    """Say that tokenising the raw test set changes over 1 % of its prepared lines; empty if it does not.

    Lines change where other rules made the given tokens, or where Chinese was given in words.
    """
    for test_set in test_sets(data, ()):
        paths = [data / place / f"{test_set.name}.{source}" for place in ("raw", "text")]
        if not all(path.is_file() for path in paths):
            continue
        lines = list(islice(zip(*map(read_lines, paths), strict=False), SAMPLE))
        others = sum(encode(raw) != tokens.split() for raw, tokens in lines)
        # Versions of Moses differ in one to three lines of a thousand.
        if others > 0.01 * len(lines):
            return f"tokenising changes {others:,} of the first {len(lines):,} lines of {paths[0]} against {paths[1]}"
    return ""


def files_of(args: argparse.Namespace, text: Preprocessor, settings: Mapping[str, str]) -> dict[str, Path]:
    """Return where each file of :func:`~fairseq_plugins.tools.text.moses.files_of` is, by its name in the package."""
    end = f".{text.source}" if settings.get("JOINT_CODES") == "0" else ""
    learned = "codes" if text.subwords == "subword_nmt" else "sentencepiece.model"
    places = {
        CODES: (args.codes or args.data / f"{learned}{end}", "--codes FILE names the merges or the model"),
        VOCABULARY: (args.data / f"vocabulary.{text.source}", "prepare the directory again"),
        TRUECASER: (args.truecaser or args.data / "truecaser", "--truecaser FILE names Moses' model"),
    }
    files = {name: places[name] for name in moses.files_of(text)}
    for option, given, needed in (
        ("codes", args.codes, CODES in files),
        ("truecaser", args.truecaser, TRUECASER in files),
    ):
        if given and not needed:
            raise UserError(f"--{option} {given}: {args.data / FILE} says that the text needs none")
    if missing := [f"{path}: no such file; {advice}" for path, advice in files.values() if not path.is_file()]:
        raise UserError(missing)
    return {name: path for name, (path, _) in files.items()}
