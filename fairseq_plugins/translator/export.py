"""``fairseq-deep export MODEL [OUT]``: a model of CTranslate2, and the proof that it computes the same.

The proof is a part of the command: before anything appears, 64 sentences are scored by both engines in float32, and the
search of both translates a few of them with the weights as they are stored.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fairseq_plugins.checkpoints.files import read_checkpoint
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import require_no_input, whole_directory
from fairseq_plugins.options import IntermixedParser
from fairseq_plugins.pipeline.corpus import binarised
from fairseq_plugins.pipeline.decoding import configuration_of, languages_of
from fairseq_plugins.process import exit_code
from fairseq_plugins.translator.engines import CTranslate2Engine, FairseqEngine, How
from fairseq_plugins.translator.model import build, dictionaries_of, options_of
from fairseq_plugins.translator.package import (
    FASTEST,
    Package,
    add_engine,
    open_package,
    require_replaceable,
    write_sums,
)
from fairseq_plugins.translator.packaging import search_of

SENTENCES, TRANSLATED, SHOWN = 64, 16, 3
LONGEST = 40
"""Tokens of a sentence of the proof."""
LARGEST_DIFFERENCE = 1e-4
"""Between two log-probabilities (natural log) in float32, of a size of up to 1, and in proportion above that."""

LARGEST_MEAN = 0.5
"""Difference (natural log) that is no rounding of weights: int8 at width 64 has 0.025, and less at larger widths."""


@dataclass(frozen=True)
class Subject:
    """What is exported.

    Args:
        model: in evaluation mode.
        options: its flat configuration.
        dictionaries: has ``source_dictionary`` and ``target_dictionary``.
        search: settings of the search.
        path: names it in messages.
    """

    model: Any
    options: dict[str, Any]
    dictionaries: Any
    search: dict[str, Any]
    path: Path


def parser() -> IntermixedParser:
    """Flags of ``fairseq-deep export``."""
    flags = IntermixedParser(
        prog="fairseq-deep export",
        description="Convert a model for CTranslate2, a faster engine: pip install 'fairseq-deep[export]'. A directory "
        "of fairseq-deep package gets the result beside its weights, and fairseq-deep translate then uses it. Nothing "
        "is written unless both engines give the same log-probabilities.",
    )
    flags.add_argument("model", type=Path, metavar="MODEL", help="a directory of fairseq-deep package, or a checkpoint")
    flags.add_argument(
        "out", nargs="?", type=Path, metavar="OUT", help="the directory to make (default: in the package)"
    )
    flags.add_argument(
        "--quantization", choices=FASTEST, default="float32", help="how the weights are stored (default: float32)"
    )
    flags.add_argument("--data", type=Path, metavar="DIR", help="of a checkpoint: the directory with its dictionaries")
    flags.add_argument("--force", action="store_true", help="overwrite OUT, an export")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Export; 0, or 2 after one line for each problem."""
    return exit_code(lambda: export(parser().read(argv)))


def export(args: argparse.Namespace) -> None:
    """Convert, prove, and only then let the result appear.

    Raises:
        UserError: the model has no counterpart, the proof has failed, or the result cannot be written.
    """
    if find_spec("ctranslate2") is None:
        raise UserError("CTranslate2 is not installed: pip install 'fairseq-deep[export]'")
    from fairseq_plugins.translator.ctranslate2_model import (
        ModelConverter,
        obstacles_to_export,
        without_scaled_streams,
    )

    logging.getLogger().setLevel(logging.WARNING)
    package = open_package(args.model) if args.model.is_dir() else None
    if package is None and args.out is None:
        raise UserError("a checkpoint needs OUT: fairseq-deep export CHECKPOINT OUT")
    enters = args.out is None
    out: Path = args.out or args.model / f"ctranslate2-{args.quantization}"
    # What stands in a package in the place of an export was one, even if it is damaged.
    require_replaceable(out, args.force, "an export", () if enters else ("model.bin", "config.json"))
    require_no_input(out, [args.model, *([args.data] if args.data else [])])
    subject = _of_package(package) if package else _of_checkpoint(args.model, args.data)
    if problems := obstacles_to_export(subject.model):
        hint = "fairseq-deep translate searches with this package's own code"
        raise UserError([*(f"no counterpart in CTranslate2: {problem}" for problem in problems), hint])
    plain = without_scaled_streams(subject.model, subject.options, subject.path)
    converter = ModelConverter(plain)
    how, positions = How({**subject.search, "lenpen_form": "fairseq"}, device="cpu"), subject.model.max_positions()[1]
    ours = FairseqEngine(subject.model, subject.dictionaries, how)
    sentences, targets = _sentences(subject, 0), _sentences(subject, 1)
    with TemporaryDirectory() as place:
        exact = Path(place, "float32")
        converter.convert(str(exact))
        _prove(ours, CTranslate2Engine(exact, how, positions), sentences, targets, f"{subject.path}, float32")
    with whole_directory(out, overwrite=args.force) as partial:
        converter.convert(str(partial), quantization=args.quantization, force=True)
        theirs = CTranslate2Engine(partial, how, positions)
        if args.quantization != "float32":
            _report(_differences(ours, theirs, sentences, targets), args.quantization)
        _show(ours, theirs, sentences[:TRANSLATED])
        if not enters:
            write_sums(partial)
    if package is not None and enters:
        add_engine(package.directory, out, args.quantization)
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB")


def _of_package(package: Package) -> Subject:
    model, dictionaries = package.model(), package.dictionaries()
    return Subject(model, dict(package.content["model"]), dictionaries, package.content["search"], package.directory)


def _of_checkpoint(path: Path, data: Path | None) -> Subject:
    state = read_checkpoint(path)
    config = configuration_of(state)
    said = data or config["task"].get("data")
    if not said:
        raise UserError(f"{path}: nothing says where its dictionaries are; give --data DIR")
    directory = binarised(Path(said))
    names = languages_of(directory, config)
    dictionaries = dictionaries_of(*(directory / f"dict.{name}.txt" for name in names))
    options = options_of(state, path)
    model = build(options, state["model"], dictionaries, path)
    return Subject(model, options, dictionaries, search_of(config.get("generation", {})), path)


def _sentences(subject: Subject, side: int) -> list[list[str]]:
    """Random sentences of 1 to :data:`LONGEST` words, drawn by their frequency; ``side`` 0 is the source."""
    dictionary = (subject.dictionaries.source_dictionary, subject.dictionaries.target_dictionary)[side]
    longest = min(LONGEST, subject.model.max_positions()[side] - 1)
    generator = torch.Generator().manual_seed(side + 1)
    counts = torch.tensor(dictionary.count[dictionary.nspecial :], dtype=torch.float64).clamp(min=1)
    sentences = []
    for number in range(SENTENCES):
        drawn = torch.multinomial(counts, 1 + number * (longest - 1) // (SENTENCES - 1), True, generator=generator)
        sentences.append([dictionary[dictionary.nspecial + index] for index in drawn.tolist()])
    return sentences


def _differences(ours: Any, theirs: Any, sentences: Any, targets: Any) -> list[tuple[float, float]]:
    """Of each token: the log-probability of this package, and by how much the other differs."""
    pairs = zip(ours.score(sentences, targets), theirs.score(sentences, targets), strict=True)
    return [(a, abs(a - b)) for here, there in pairs for a, b in zip(here, there, strict=True)]


def _report(found: list[tuple[float, float]], name: str) -> None:
    """Print how much they differ.

    Raises:
        UserError: they have nothing to do with one another.
    """
    differences = [difference for _, difference in found]
    mean = sum(differences) / len(differences)
    if not mean <= LARGEST_MEAN:
        raise UserError(f"{name}: log-probabilities differ by {mean:.1e} on average; nothing written")
    lowest = min(value for value, _ in found)
    print(
        f"{name}: {len(found):,} log-probabilities of {SENTENCES} sentences, down to {lowest:.1f}: "
        f"largest difference {max(differences):.1e}, mean {mean:.1e}"
    )


def _prove(ours: Any, theirs: Any, sentences: Any, targets: Any, name: str) -> None:
    """Compare log-probabilities.

    Raises:
        UserError: they differ by more than rounding.
    """
    found = _differences(ours, theirs, sentences, targets)
    _report(found, name)
    worst = max(difference / max(1.0, abs(value)) for value, difference in found)
    if not worst <= LARGEST_DIFFERENCE:
        raise UserError(f"{name}: CTranslate2 computes something else (difference {worst:.1e}); nothing written")


def _show(ours: Any, theirs: Any, sentences: Any) -> None:
    """Print translations of both engines side by side."""
    pairs = list(zip(sentences, ours.search(sentences), theirs.search(sentences), strict=True))
    equal = sum(here.tokens == there.tokens for _, [here], [there] in pairs)
    print(f"beam search: {equal} of {len(pairs)} translations are equal")
    # Those that differ first.
    for sentence, [here], [there] in sorted(pairs, key=lambda pair: pair[1][0].tokens == pair[2][0].tokens)[:SHOWN]:
        print(f"  source       {' '.join(sentence)}")
        print(f"  fairseq      {here.score:8.4f}  {' '.join(here.tokens)}")
        print(f"  ctranslate2  {there.score:8.4f}  {' '.join(there.tokens)}")
