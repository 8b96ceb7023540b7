"""Translate a file on all machines of a Ray cluster: ``python examples/translate_with_ray.py MODEL INPUT OUTPUT``.

The file is translated in blocks of lines, which every worker writes whole into ``OUTPUT.blocks``. MODEL, INPUT and
OUTPUT are on a disk that all machines see. A lost worker loses the block that it had, which Ray gives to another one.
The same command does what is missing; the output has the lines of the input, in their order. It needs
``pip install 'fairseq-deep[ray]'``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ray

from fairseq_plugins import Translator
from fairseq_plugins.tools.translator.blocks import LINES, Blocks


class Worker:
    """A model in a process of its own, which translates one block after the other."""

    def __init__(self, translator: Translator, blocks: Blocks) -> None:
        self.translator, self.blocks = translator, blocks

    def __call__(self, row: dict[str, int]) -> dict[str, int]:
        """Translate the block of this number; the answer has its lines, too."""
        lines = self.blocks.read(row["block"])
        translations = self.translator.translate(lines)
        return {**row, "lines": self.blocks.write(row["block"], (translation.text for translation in translations))}


def main() -> None:
    """Translate what is missing, and write the output."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("input", type=Path, help="text, or text.gz")
    parser.add_argument("output", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpus", type=float, default=1, help="of a worker")
    parser.add_argument("--gpus", type=float, default=0, help="of a worker")
    parser.add_argument("--block", type=int, default=LINES, metavar="LINES")
    parser.add_argument("--beam", type=int)
    args = parser.parse_args()

    device = "gpu" if args.gpus else "cpu"
    translator = Translator(args.model, device=device, beam=args.beam)
    blocks = Blocks(args.input.resolve(), args.output.resolve(), translator.settings, args.block)
    missing = [{"block": number} for number, _ in blocks.missing()]
    if missing:
        ray.init()
        # A block is a task of its own, so that a lost worker repeats no other.
        rows = ray.data.from_items(missing, override_num_blocks=len(missing))
        done = rows.map(
            Worker,
            fn_constructor_args=(translator, blocks),
            concurrency=args.workers,
            num_cpus=args.cpus,
            num_gpus=args.gpus,
        )
        lines = sum(row["lines"] for row in done.iter_rows())
        print(f"{lines:,} lines translated in {len(missing):,} blocks")
    blocks.join()


if __name__ == "__main__":
    main()
