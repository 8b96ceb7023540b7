"""A training step, or a beam search, of this package beside those of other toolkits.

Each toolkit's model lives in a process of its own, in an environment of its own, and the processes take turns: one
piece of work each a round, so that whatever else the machine does meets all of them. The processor clock is compared.
Batches, sizes, dropout and smoothing are the same; rows of fairseq use ``Trainer.train_step`` with fairseq's optimizer,
the others a loop with ``torch.optim.Adam``.

    python3 -m venv peers
    peers/bin/pip install -r benchmarks/peers/requirements.txt
    peers/bin/pip install --no-deps joeynmt==2.3.0 eole==0.6.4
    python benchmarks/peers/run.py --python peers/bin/python --layers 18 --width 256

Sockeye 3 and OpenNMT-py 3 pin torch below 2.2, and do not run beside the others.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = ("stock", "post_ln", "pre_ln", "admin", "admin_fast")
PEERS = ("hugging_face", "hugging_face_post_ln", "torch", "joeynmt", "eole")
SEARCHES = ("stock", "post_ln", "pre_ln", "admin", "hugging_face", "hugging_face_post_ln", "joeynmt")
WARM_UP = 2


class Contender:
    """One toolkit in its process."""

    def __init__(self, name: str, python: str, settings: dict[str, Any]) -> None:
        """Start it; it builds its model while the others do."""
        command = [python, "-W", "ignore", str(HERE / "worker.py"), name, json.dumps(settings)]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds: list[dict[str, float]] = []

    def answer(self) -> str:
        """The next line that it prints.

        Raises:
            SystemExit: it has ended; what it wrote to standard error says why.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self.name} ended with exit code {self.process.wait()}")
        return line

    def work(self) -> None:
        """Let it do one piece of work and keep the seconds."""
        assert self.process.stdin is not None
        print("work", file=self.process.stdin, flush=True)
        self.seconds.append(json.loads(self.answer()))


def flags() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="Python of the peers' environment")
    parser.add_argument("--toolkits", default=",".join(OURS + PEERS), help="default: %(default)s")
    parser.add_argument("--work", choices=("train", "search", "profile"), default="train")
    parser.add_argument("--fused", action="store_true", help="the peers' Adam is fused")
    parser.add_argument("--layers", type=int, default=6, help="on each side")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--sentences", type=int, default=16)
    parser.add_argument("--length", type=int, default=25, help="tokens a sentence, on each side")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def _print_kinds(contenders: Sequence[Contender]) -> None:
    """Print the milliseconds of a step by kind of operation, the median of the rounds."""
    rounds = {contender.name: contender.seconds[WARM_UP:] for contender in contenders}
    kinds = sorted({kind for found in rounds.values() for one in found for kind in one})
    print(f"| toolkit | ms | {' | '.join(kinds)} |\n|---|{'---:|' * (len(kinds) + 1)}")
    for contender in contenders:
        found = rounds[contender.name]
        cells = [statistics.median(one.get(kind, 0.0) for one in found) for kind in kinds]
        whole = statistics.median(sum(one.values()) for one in found)
        print(f"| {contender.name} | {whole:.0f} | {' | '.join(f'{cell:.0f}' for cell in cells)} |")
        contender.process.terminate()


def main() -> None:
    """Print a table: processor seconds of each toolkit, and their ratio to the first one's in the same round."""
    args = flags()
    names = [name for name in args.toolkits.split(",") if args.work != "search" or name in SEARCHES]
    settings = {key: getattr(args, key) for key in ("layers", "width", "vocabulary", "sentences", "length")}
    settings |= {"threads": args.threads, "work": args.work, "fused": args.fused}
    contenders = [Contender(name, sys.executable if name in OURS else args.python, settings) for name in names]
    for contender in contenders:
        contender.answer()
    for _ in range(WARM_UP + args.rounds):
        for contender in contenders:
            contender.work()
    print(
        f"{args.work}, {args.layers}-{args.layers} layers, width {args.width}, vocabulary {args.vocabulary}, ", end=""
    )
    print(f"{args.sentences} x {args.length} tokens, {args.rounds} rounds, {args.threads} thread(s)\n")
    if args.work == "profile":
        _print_kinds(contenders)
        return
    print(f"| toolkit | to {names[0]}, median (least to most) | processor s |\n|---|---|---:|")
    base = [seconds["processor"] for seconds in contenders[0].seconds[WARM_UP:]]
    for contender in contenders:
        times = [seconds["processor"] for seconds in contender.seconds[WARM_UP:]]
        ratios = sorted(own / other for own, other in zip(times, base, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {contender.name} | {spread} | {statistics.median(times):.3f} |")
        contender.process.terminate()


if __name__ == "__main__":
    main()
