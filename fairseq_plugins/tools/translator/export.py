"""``fairseq-deep export MODEL``: the model of a package for another engine, and the proof that it computes the same.

The proof is a part of the command: before anything appears, random sentences are scored by both engines in float32, and
the search of both translates some of them. A model of CTranslate2 becomes a part of the package; one of Hugging Face is
a directory of its own.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_directory
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.tools.translator import equivalence
from fairseq_plugins.tools.translator.engines import CTRANSLATE2, CTranslate2Engine, SearchOptions
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine
from fairseq_plugins.tools.translator.package import FASTEST, Package, add_engine, open_package, require_replaceable

TRANSFORMERS = "transformers"
TRANSLATED = 16
"""Sentences that both searches translate."""


def main(argv: Sequence[str] | None = None) -> int:
    """Export; 0, or 2 after one line for each problem."""
    flags = OneLineParser(
        prog="fairseq-deep export",
        description="Convert the model of a package for CTranslate2, a faster engine (pip install "
        "'fairseq-deep[export]'), or for Hugging Face transformers (pip install 'fairseq-deep[transformers]'). The "
        "first is a directory in the package, and fairseq-deep translate then uses it; the second is DIR, which needs "
        "nothing of this package. Nothing is written unless both engines give the same log-probabilities in float32; "
        "int8 may differ more.",
    )
    flags.add_argument("model", type=Path, metavar="MODEL", help="a directory of fairseq-deep package")
    flags.add_argument("out", type=Path, nargs="?", metavar="DIR", help="of transformers: the directory to make")
    flags.add_argument("--to", choices=(CTRANSLATE2, TRANSFORMERS), default=CTRANSLATE2, help="default: ctranslate2")
    flags.add_argument("--force", action="store_true", help="overwrite an export")
    of_ctranslate2 = flags.add_argument_group(CTRANSLATE2)
    of_ctranslate2.add_argument("--quantization", choices=FASTEST, help="how the weights are stored (default: float32)")
    of_transformers = flags.add_argument_group(TRANSFORMERS)
    for name, metavar, help in (
        ("text", "FILE", "raw sentences; the first 200 are part of the proof"),
        ("run", "RUN", "the training, whose recipe and scores are written to the model card"),
    ):
        of_transformers.add_argument(f"--{name}", type=Path, metavar=metavar, help=help)
    of_transformers.add_argument(
        "--license", metavar="ID", help="of the model card, as Hugging Face calls it: mit, ..."
    )
    return exit_code(lambda: export(flags.read(argv)))


def export(args: argparse.Namespace) -> None:
    """Convert, prove, and only then let the result appear; else a UserError says why it does not."""
    others = ["quantization"] if args.to == TRANSFORMERS else ["out", "text", "run", "license"]
    if given := [name for name in others if getattr(args, name) is not None]:
        name = "DIR" if given[0] == "out" else f"--{given[0]}"
        raise UserError(f"--to {args.to} takes no {name}")
    if args.to == TRANSFORMERS and args.out is None:
        raise UserError("--to transformers needs DIR, the directory to make")
    extra = {CTRANSLATE2: "export", TRANSFORMERS: "transformers"}[args.to]
    if find_spec(args.to) is None:
        raise UserError(f"{args.to} is not installed: pip install 'fairseq-deep[{extra}]'")
    logging.getLogger().setLevel(logging.WARNING)
    if args.to == TRANSFORMERS:
        from fairseq_plugins.tools.translator.transformers_export import export_to_transformers

        export_to_transformers(open_package(args.model), args.out, args)
    else:
        export_to_ctranslate2(open_package(args.model), args.quantization or "float32", args.force)


def export_to_ctranslate2(package: Package, quantization: str, force: bool) -> None:
    """Add an engine to a package, or raise a UserError that says why not."""
    from fairseq_plugins.tools.translator.ctranslate2_model import (
        ModelConverter,
        obstacles_to_export,
        without_scaled_streams,
    )

    path = package.directory
    out = path / f"ctranslate2-{quantization}"
    require_replaceable(out, force, "config.json")
    model, dictionaries = package.model(), package.dictionaries()
    if problems := obstacles_to_export(model):
        raise UserError(f"CTranslate2 does not support: {', '.join(problems)}; fairseq-deep translate needs no export")
    converter = ModelConverter(without_scaled_streams(model, dict(package.content["model"]), path))
    options = SearchOptions({**package.content["search"], "lenpen_form": "fairseq"}, device="cpu")
    source, target = model.max_positions()
    texts = [
        equivalence.drawn_sentences(dictionaries.source_dictionary, source, seed=1),
        equivalence.drawn_sentences(dictionaries.target_dictionary, target, seed=2),
    ]
    ours = FairseqEngine(model, dictionaries, options)
    with TemporaryDirectory() as place:
        exact = Path(place, "float32")
        converter.convert(str(exact))
        theirs = CTranslate2Engine(exact, options, target)
        print(equivalence.compare_scores(ours, theirs, texts, f"{path}, float32", equivalence.LARGEST_DIFFERENCE))
    with whole_directory(out, overwrite=force) as partial:
        converter.convert(str(partial), quantization=quantization, force=True)
        theirs = CTranslate2Engine(partial, options, target)
        if quantization != "float32":
            print(equivalence.compare_scores(ours, theirs, texts, quantization))
        print(equivalence.compare_searches(ours, theirs, texts[0][:TRANSLATED]))
    add_engine(path, out, quantization)
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB")
