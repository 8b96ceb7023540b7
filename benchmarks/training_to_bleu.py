"""One training of Multi30k from raw text to BLEU, and its translator by every engine: the chain that a user runs.

``RAW`` names a directory that has the text already; otherwise it is downloaded. What is made stays in ``--out``, and
the same command continues there. The configuration is one for a CPU; if there is a GPU, it takes it, in fp16.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
DEEP = (sys.executable, "-m", "fairseq_plugins.tools.cli")


def timed(what: str, *command: object, made: Path | None = None) -> None:
    """Run a command and print the seconds that it took; its own lines go to standard error.

    If what it makes is there already, in part or whole, the seconds are those of the rest.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    note = " (continued)" if made is not None and made.exists() else ""
    began = time.perf_counter()
    subprocess.run(list(map(str, command)), cwd=ROOT, stdout=sys.stderr, check=True)
    print(f"| {what}{note} | {time.perf_counter() - began:.0f} |", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Print a table of seconds, the scores, and the table of engines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="multi30k_de_en/admin_6e6d", help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "training_to_bleu", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="of the engines")
    parser.add_argument("--threads", type=int, help="of every command; default: OMP_NUM_THREADS, else all cores")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes to the configuration")
    args = parser.parse_args(argv)
    os.environ["PYTHON"] = sys.executable
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    device = ("common.cpu=false", "common.fp16=true") if torch.cuda.is_available() else ()
    out: Path = args.out.resolve()
    data, run, package = out / "data", out / "run", out / "translator"
    print("| stage | seconds |\n| --- | ---: |")
    timed("prepare", ROOT / "scripts" / "prepare_multi30k.sh", data, made=data)
    timed("train", *DEEP, "run", args.config, data, run, *device, *args.changes, made=run)
    timed("average, translate, score", *DEEP, "evaluate", run, data, made=run / "evaluation")
    timed("package", *DEEP, "package", run, package, "--force")
    timed("export, with its comparison", *DEEP, "export", package)
    for test_set in sorted(path.parent for path in run.glob("evaluation/*/score.txt")):
        print(f"\n{test_set.name}:\n\n```\n{(test_set / 'score.txt').read_text(encoding='utf-8').strip()}\n```\n")
    sides = [data / "raw" / f"test.{language}" for language in ("de", "en")]
    command = [sys.executable, ROOT / "benchmarks" / "engines_time.py", package, *sides, "--rounds", str(args.rounds)]
    print(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
