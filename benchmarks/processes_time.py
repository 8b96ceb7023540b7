"""One test set translated by ``fairseq-deep generate`` in one process and in several, one thread each.

A model that has seen one update translates made-up sentences, every translation as long as the others. Run it from the
repository's root: ``python benchmarks/processes_time.py --help``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import machine, with_quartiles, zipf_tokens

FEW = 4
"""Sentences of the second test set, which takes hardly longer than a command's start."""


def fairseq_deep(*words: object) -> str:
    """What a command prints; it has one thread a process."""
    command = [sys.executable, "-m", "fairseq_plugins.cli", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def prepare(directory: Path, args: argparse.Namespace) -> None:
    """Make a corpus and a model of one update."""
    for split, rows in (("train", 200), ("valid", 20), ("test", args.sentences), ("few", FEW)):
        for seed, language in enumerate(("de", "en")):
            lines = zipf_tokens(rows, args.length, args.vocabulary, seed).tolist()
            text = "".join(" ".join(f"w{number}" for number in line) + "\n" for line in lines)
            (directory / f"{split}.{language}").write_text(text, encoding="utf-8")
    texts = [word for split in ("train", "valid") for word in (f"--{split}pref", directory / split)]
    texts += ["--testpref", f"{directory / 'test'},{directory / 'few'}"]
    fairseq_deep("preprocess", "-s", "de", "-t", "en", *texts, "--joined-dictionary", "--destdir", directory / "bin")
    sizes = [
        word
        for stack in ("encoder", "decoder")
        for name, value in (("layers", args.layers), ("embed-dim", args.width), ("ffn-embed-dim", 4 * args.width))
        for word in (f"--{stack}-{name}", value)
    ]
    fairseq_deep(
        *("train", directory / "bin", "--arch", args.arch, *sizes, "--share-all-embeddings", "--optimizer", "adam"),
        *("--max-update", 1, "--max-tokens", 1000, "--cpu", "--save-dir", directory, "--disable-validation"),
    )


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="post_ln_transformer")
    parser.add_argument("--layers", type=int, default=6, help="on each side")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--length", type=int, default=25, help="tokens a sentence, on each side")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--processes", default="1,2", help="numbers of processes; the first is the base of the ratios")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    counts = [int(count) for count in args.processes.split(",")]
    seconds: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        prepare(directory, args)
        # The same number of steps for every sentence, so that the work does not depend on what was learnt.
        search = ("--beam", args.beam, "--min-len", args.length, "--max-len-a", 0, "--max-len-b", args.length)
        model = ("--path", directory / "checkpoint_last.pt", "--cpu", "--max-tokens", 2000)
        for _ in range(args.rounds):
            for count in counts:
                took = []
                for subset, expected in (("test", args.sentences), ("test1", FEW)):
                    begun = time.perf_counter()
                    words = ("--gen-subset", subset, "--processes", count)
                    printed = fairseq_deep("generate", directory / "bin", *model, *search, *words)
                    took.append(time.perf_counter() - begun)
                    assert sum(line.startswith("H-") for line in printed.splitlines()) == expected, printed
                seconds[count].append((took[0], took[0] - took[1]))
    print(f"{machine('cpu')}; {args.arch}, {args.layers}-{args.layers} layers, width {args.width}; ", end="")
    print(f"{args.sentences} sentences of {args.length} tokens, beam {args.beam}; {args.rounds} rounds\n")
    print("Times as fast: medians and quartiles of the rounds; the start is the time that a test set of 4 takes.\n")
    print("| processes | times as fast | times as fast without the start | median s without the start |")
    print("|---:|---:|---:|---:|")
    for count in counts:
        cells = []
        for column in (0, 1):
            pairs = zip(seconds[counts[0]], seconds[count], strict=True)
            gains = sorted(base[column] / other[column] for base, other in pairs)
            cells.append(with_quartiles(gains, digits=2))
        middle = statistics.median(search for _, search in seconds[count])
        print(f"| {count} | {cells[0]} | {cells[1]} | {middle:.1f} |")


if __name__ == "__main__":
    main()
