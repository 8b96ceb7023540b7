"""Sentences a second and BLEU of every engine of a package, beside fairseq's own search, interleaved in one process.

The package is one of ``fairseq-deep package``, with the exports that are to be measured; raw text is translated with
its search settings, on the GPU if there is one. On a CPU both kinds of engine use ``--threads``; processor time is that
of all of them. What this machine cannot run is named below the
table. Run it from the repository's root:
``python benchmarks/engines_time.py PACKAGE SOURCE REFERENCE --threads 2``.
"""

import argparse
import os
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from common import interleaved, machine, ratios, with_quartiles
from sacrebleu.metrics import BLEU

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.translator.engines import FAIRSEQ
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine
from fairseq_plugins.tools.translator.package import open_package
from fairseq_plugins.tools.translator.translate import Translator

STOCK = "fairseq's search"
FULL, HALF = "float32", "float16"
ON_DEVICE = {"cpu": (FULL,), "cuda": (FULL, HALF)}
"""Precisions of the lean search."""


def with_engine(directory: Path, search: str, precision: str, device: str = "cpu") -> Translator:
    """A translator in PyTorch, whose search or precision is another than the package's."""
    translator = Translator(directory, engine=FAIRSEQ, device=device)
    options = replace(translator._options, search={**translator._options.search, "search": search})
    model = translator.package.model()
    if precision == HALF:
        model.half()
    translator._engine = FairseqEngine(model, translator.package.dictionaries(), options)
    return translator


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=tuple(ON_DEVICE), default=usual, help="default here: %(default)s")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default here: %(default)s")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # which CTranslate2 reads
    texts, references = (path.read_text(encoding="utf-8").splitlines() for path in (args.source, args.reference))
    makers = {STOCK: partial(with_engine, args.package, "fairseq", FULL, args.device)}
    for each in ON_DEVICE[args.device]:
        makers[f"lean search, {each}"] = partial(with_engine, args.package, "lean", each, args.device)
    for name in open_package(args.package).content["engines"]:
        makers[name] = partial(Translator, args.package, engine=name, device=args.device)
    translators: dict[str, Translator] = {}
    left_out = []
    for name, make in makers.items():
        try:
            translator = make()
            # Only then CTranslate2 looks for the libraries of its CUDA, which may not be PyTorch's.
            translator.translate(texts[:1])
            translators[name] = translator
        except UserError as error:
            left_out.append(f"Left out: {name}: {error}")
    found: dict[str, list[str]] = {}

    def translate(name: str) -> None:
        found[name] = [each.text for each in translators[name].translate(texts)]

    seconds = interleaved({name: partial(translate, name) for name in translators}, args.rounds, args.device)
    metric = BLEU()
    print(f"{machine(args.device)}; {len(texts)} sentences; {args.rounds} rounds\n")
    print("| engine | sentences/s | times as fast (quartiles) | by processor time | BLEU | same as stock's |")
    print("|---|---:|---:|---:|---:|---:|")
    gains = {
        clock: {name: sorted(1 / one for one in each) for name, each in ratios(seconds, clock, STOCK).items()}
        for clock in ("wall", "processor")
    }
    for name, times in seconds.items():
        same = sum(map(str.__eq__, found[name], found[STOCK])) / len(texts)
        speed = len(texts) / statistics.median(one["wall"] for one in times)
        cells = " | ".join(with_quartiles(gains[clock][name], digits=2) for clock in gains)
        score = metric.corpus_score(found[name], [references]).score
        print(f"| {name} | {speed:.1f} | {cells} | {score:.2f} | {same:.1%} |")
    print(f"\nBLEU: `{metric.get_signature()}`")
    for line in left_out:
        print(f"\n{line}")


if __name__ == "__main__":
    main()
