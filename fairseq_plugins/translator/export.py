"""``fairseq-deep export MODEL``: a model of CTranslate2 in a package, and the proof that it computes the same.

The proof is a part of the command: before anything appears, 64 sentences are scored by both engines in float32, and the
search of both translates a few of them with the weights as they are stored.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_directory
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.translator.engines import CTranslate2Engine, Engine, How
from fairseq_plugins.translator.fairseq_engine import FairseqEngine
from fairseq_plugins.translator.package import FASTEST, add_engine, open_package, require_replaceable

SENTENCES, TRANSLATED = 64, 16
LONGEST = 40
"""The longest sentence of the proof, in tokens."""
LARGEST_DIFFERENCE = 1e-4
"""So much may two log-probabilities (natural log, float32) up to 1 differ; larger ones in proportion."""
LARGEST_MEAN = 0.5
"""A larger mean difference (natural log) is no rounding of weights; int8 at width 64 has 0.025, wider models less."""


def main(argv: Sequence[str] | None = None) -> int:
    """Export; 0, or 2 after one line for each problem."""
    flags = OneLineParser(
        prog="fairseq-deep export",
        description="Convert the model of a package for CTranslate2, a faster engine: pip install "
        "'fairseq-deep[export]'. The result is a directory in the package, and fairseq-deep translate then uses it. "
        "Nothing is written unless both engines give the same log-probabilities.",
    )
    flags.add_argument("model", type=Path, metavar="MODEL", help="a directory of fairseq-deep package")
    flags.add_argument(
        "--quantization", choices=FASTEST, default="float32", help="how the weights are stored (default: float32)"
    )
    flags.add_argument("--force", action="store_true", help="overwrite an export")
    return exit_code(lambda: export(flags.read(argv)))


def export(args: argparse.Namespace) -> None:
    """Convert, prove, and only then let the result appear; else a UserError says why it does not."""
    if find_spec("ctranslate2") is None:
        raise UserError("CTranslate2 is not installed: pip install 'fairseq-deep[export]'")
    from fairseq_plugins.translator.ctranslate2_model import (
        ModelConverter,
        obstacles_to_export,
        without_scaled_streams,
    )

    logging.getLogger().setLevel(logging.WARNING)
    package = open_package(args.model)
    out: Path = args.model / f"ctranslate2-{args.quantization}"
    require_replaceable(out, args.force)
    model, dictionaries = package.model(), package.dictionaries()
    if problems := obstacles_to_export(model):
        raise UserError(f"CTranslate2 has not: {', '.join(problems)}; fairseq-deep translate needs no export")
    converter = ModelConverter(without_scaled_streams(model, dict(package.content["model"]), args.model))
    how = How({**package.content["search"], "lenpen_form": "fairseq"}, device="cpu")
    positions = model.max_positions()
    texts = [
        _sentences(dictionaries.source_dictionary, min(LONGEST, positions[0] - 1), seed=1),
        _sentences(dictionaries.target_dictionary, min(LONGEST, positions[1] - 1), seed=2),
    ]
    ours = FairseqEngine(model, dictionaries, how)
    with TemporaryDirectory() as place:
        exact = Path(place, "float32")
        converter.convert(str(exact))
        _prove(ours, CTranslate2Engine(exact, how, positions[1]), texts, f"{args.model}, float32", LARGEST_DIFFERENCE)
    with whole_directory(out, overwrite=args.force) as partial:
        converter.convert(str(partial), quantization=args.quantization, force=True)
        theirs = CTranslate2Engine(partial, how, positions[1])
        if args.quantization != "float32":
            _prove(ours, theirs, texts, args.quantization)
        pairs = zip(ours.search(texts[0][:TRANSLATED]), theirs.search(texts[0][:TRANSLATED]), strict=True)
        equal = sum(here.tokens == there.tokens for [here], [there] in pairs)
        print(f"beam search: {equal} of {TRANSLATED} translations are equal")
    add_engine(package.directory, out, args.quantization)
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB")


def _sentences(dictionary: Any, longest: int, seed: int) -> list[list[str]]:
    """Random sentences of 1 to ``longest`` words, drawn by their frequency."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor(dictionary.count[dictionary.nspecial :], dtype=torch.float64).clamp(min=1)
    sentences = []
    for number in range(SENTENCES):
        drawn = torch.multinomial(counts, 1 + number * (longest - 1) // (SENTENCES - 1), True, generator=generator)
        sentences.append([dictionary[dictionary.nspecial + index] for index in drawn.tolist()])
    return sentences


def _prove(
    ours: Engine, theirs: Engine, texts: Sequence[list[list[str]]], name: str, largest: float = math.inf
) -> None:
    """Compare the log-probabilities of two engines, and print how much they differ.

    A difference of ``largest``, in proportion to a log-probability where that is above 1, is rounding; more is a
    UserError.
    """
    here, there = ([score for scores in engine.score(*texts) for score in scores] for engine in (ours, theirs))
    differences = [abs(a - b) for a, b in zip(here, there, strict=True)]
    mean = sum(differences) / len(differences)
    if not mean <= LARGEST_MEAN:
        raise UserError(f"{name}: log-probabilities differ by {mean:.1e} on average; nothing written")
    print(
        f"{name}: {len(here):,} log-probabilities of {SENTENCES} sentences, down to {min(here):.1f}: "
        f"largest difference {max(differences):.1e}, mean {mean:.1e}"
    )
    worst = max(difference / max(1.0, abs(value)) for value, difference in zip(here, differences, strict=True))
    if not worst <= largest:
        raise UserError(f"{name}: CTranslate2 computes something else (difference {worst:.1e}); nothing written")
