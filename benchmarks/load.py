"""Time and memory under load: a long text, a long translation, a deep model, a long training.

Each part prints a Markdown table. A command is measured as a tree of processes: its memory is the largest sum that was
sampled of their proportional set sizes, where what processes share counts once. Run it from the repository's root:
``python benchmarks/load.py PART --help``.
"""

import argparse
import logging
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import Size, make_batch, make_trainer
from fairseq.logging import metrics
from fairseq.trainer import Trainer

from fairseq_plugins.lines import in_step
from fairseq_plugins.tools.observe.guard import guarding as guard
from fairseq_plugins.tools.observe.recorder import recording

SHARES = (4, 2, 1)
"""The whole is divided by these."""
KILLED = 40
"""Its part of the text is prepared once more, killed, and continued."""
SAMPLED = 0.2
"""Seconds between two looks at the memory."""
LANGUAGES = ("de", "en")
MB = 1e6


class Measured(NamedTuple):
    """A command that has ended: seconds, largest sampled memory in bytes, exit code, and what it printed."""

    seconds: float
    memory: int
    code: int
    printed: str


def tree_of(root: int) -> Iterator[int]:
    """A process and those that it has started, and so on."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:  # it has ended
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    waiting = [root]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += parents.get(process, [])


def memory_of(process: int) -> int:
    """Proportional set size in bytes; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def measured(command: Sequence[object], output: Path, killed_after: float = math.inf) -> Measured:
    """Run a command, its standard output in a file, and sample the memory of its processes.

    Args:
        command: its words.
        output: the file.
        killed_after: seconds after which all its processes are killed.
    """
    peak = 0
    begun = time.perf_counter()
    with open(output, "wb") as stream, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([*map(str, command)], stdout=stream, stderr=errors, start_new_session=True)
        while child.poll() is None:
            peak = max(peak, sum(map(memory_of, tree_of(child.pid))))
            if time.perf_counter() - begun > killed_after:
                os.killpg(child.pid, signal.SIGKILL)
            time.sleep(SAMPLED)
        seconds = time.perf_counter() - begun
        errors.seek(0)
        printed = errors.read().decode(errors="replace")
    return Measured(seconds, peak, child.returncode, printed)


def required(command: Sequence[object], output: Path) -> Measured:
    """Like :func:`measured`, but a command that fails ends the benchmark with its output."""
    found = measured(command, output)
    if found.code:
        said = output.read_text(encoding="utf-8", errors="replace") + found.printed
        sys.exit(f"exit code {found.code}: {' '.join(map(str, command))}\n{said[-2000:]}")
    return found


def deep(*words: object) -> list[object]:
    """``fairseq-deep`` with these words."""
    return [sys.executable, "-m", "fairseq_plugins.tools.cli", *words]


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print Markdown."""
    for row in (titles, ["---"] * len(titles), *rows):
        print("| " + " | ".join(map(str, row)) + " |")


# --- texts ----------------------------------------------------------------------------------------------------------


def pairs_of(prefixes: Sequence[Path]) -> list[tuple[str, ...]]:
    """All pairs of the texts, without those that are blank."""
    pairs: list[tuple[str, ...]] = []
    for prefix in prefixes:
        paths = [Path(f"{prefix}.{language}") for language in LANGUAGES]
        pairs += in_step([path if path.exists() else Path(f"{path}.gz") for path in paths])
    return [pair for pair in pairs if all(line.strip() for line in pair)]


def write_repeated(pairs: Sequence[tuple[str, ...]], lines: int, prefix: Path) -> None:
    """Write so many pairs, shuffled: each pair about as often as any other."""
    order: list[int] = []
    generator = random.Random(1)
    while len(order) < lines:
        order += generator.sample(range(len(pairs)), min(len(pairs), lines - len(order)))
    for side, language in enumerate(LANGUAGES):
        with open(f"{prefix}.{language}", "w", encoding="utf-8", newline="\n") as text:
            text.writelines(pairs[index][side] + "\n" for index in order)


def add_text(flags: argparse.ArgumentParser, lines: int) -> None:
    """Options of the parts that need text."""
    flags.add_argument("--text", type=Path, nargs="+", required=True, metavar="PREFIX", help="PREFIX.de and PREFIX.en")
    flags.add_argument("--lines", type=int, default=lines, help=f"the largest size; default: {lines:,}")
    flags.add_argument(
        "--shares", type=int, nargs="+", default=SHARES, metavar="N", help="sizes: the N-th part of it (4 2 1)"
    )


# --- prepare --------------------------------------------------------------------------------------------------------


def digest_of(directory: Path) -> str:
    """SHA-256 over the names and the bytes of all files, but for a log that has times in it."""
    digest = sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix != ".log":
            digest.update(str(path.relative_to(directory)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def prepare(args: argparse.Namespace, work: Path) -> None:
    """Preparation at three sizes, and once killed in the middle, which is tried with a small part of the text."""
    pairs, rows, log, text = pairs_of(args.text), [], work / "log", work / "text"

    def command(directory: Path) -> list[object]:
        texts = ("--train", text, "--valid", "every-1000", "--source", "de", "--target", "en")
        return deep("prepare", directory, *texts, "--size", args.merges, "--workers", args.workers)

    for share in (*args.shares, KILLED):
        lines = args.lines // share
        write_repeated(pairs, lines, text)
        size = sum(Path(f"{text}.{language}").stat().st_size for language in LANGUAGES)
        whole, cut = work / "whole", work / "cut"
        found = required(command(whole), log)
        stages = log.read_text(encoding="utf-8").count(": creating")
        row = [f"{lines:,}", f"{size / MB:.0f}", f"{found.seconds:.0f}", f"{1e6 * found.seconds / lines:.0f}"]
        rows.append([*row, f"{found.memory / MB:.0f}"])
        print(rows[-1], file=sys.stderr, flush=True)
        if share == KILLED:
            measured(command(cut), log, killed_after=found.seconds / 2)
            again = required(command(cut), log)
            kept = log.read_text(encoding="utf-8").count("exists already, kept")
            same = digest_of(whole / "data-bin") == digest_of(cut / "data-bin")
            shutil.rmtree(cut)
        shutil.rmtree(whole)
    print_table(("lines", "text, MB", "s", "µs a line", "memory, MB"), rows)
    bytes_are = "the same bytes" if same else "OTHER BYTES"
    print(f"killed at half of it and continued: {kept} of {stages} stages kept, {again.seconds:.0f} s, {bytes_are}")


# --- translate ------------------------------------------------------------------------------------------------------


def sizes_of(layers: int, width: int) -> list[object]:
    """Flags of a model."""
    sizes = settings_of(layers, width).items()
    flags = [word for name, value in sizes for word in (f"--{name.replace('_', '-')}", value)]
    return [*flags, "--share-all-embeddings", "--optimizer", "adam", "--cpu"]


def settings_of(layers: int, width: int) -> dict[str, int]:
    """Sizes of a model by the names of fairseq's settings."""
    sizes = {"layers": layers, "embed_dim": width, "ffn_embed_dim": 4 * width}
    return {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in sizes.items()}


def translate(args: argparse.Namespace, work: Path) -> None:
    """Translations of a file at three sizes, with a model that this trains."""
    pairs, log, data = pairs_of(args.text), work / "log", work / "data"
    write_repeated(pairs, min(len(pairs), 20_000), work / "text")
    texts = ("--train", work / "text", "--valid", "every-100", "--source", "de", "--target", "en")
    required(deep("prepare", data, *texts, "--size", 2000), log)
    heads = ("--encoder-attention-heads", 2, "--decoder-attention-heads", 2)
    lengths = ("--max-update", args.updates, "--max-tokens", 2000, "--lr", 0.003, "--disable-validation")
    model = ("--arch", "post_ln_transformer", *sizes_of(1, args.width), *heads)
    required(deep("train", data / "data-bin", *model, *lengths, "--save-dir", work / "run"), log)
    checkpoint, package = work / "run" / "checkpoint_last.pt", work / "package"
    required(deep("package", checkpoint, package, "--data", data), log)
    rows = []
    for share in args.shares:
        lines = args.lines // share
        write_repeated(pairs, lines, work / "input")
        how = ("--beam", args.beam, "--device", "cpu", "--processes", args.processes)
        found = required(deep("translate", package, work / "input.de", *how), work / "output")
        with open(work / "output", "rb") as output:
            made = sum(1 for _ in output)
        row = [f"{lines:,}", f"{made:,}", f"{found.seconds:.0f}", f"{1e3 * found.seconds / lines:.2f}"]
        rows.append([*row, f"{found.memory / MB:.0f}"])
        print(rows[-1], file=sys.stderr, flush=True)
    print_table(("lines", "lines out", "s", "ms a line", "memory, MB"), rows)


# --- depth ----------------------------------------------------------------------------------------------------------


def write_made_up(directory: Path, vocabulary: int) -> None:
    """A binarised corpus, and the dictionary of so many words that both sides share."""
    words = [f"w{number}" for number in range(vocabulary - 4)]
    (directory / "dict.txt").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
    generator = random.Random(1)
    for language in LANGUAGES:
        lines = (" ".join(generator.choices(words, k=20)) + "\n" for _ in range(200))
        (directory / f"train.{language}").write_text("".join(lines), encoding="utf-8")
    dictionary = ("--srcdict", directory / "dict.txt", "--joined-dictionary")
    texts = ("--trainpref", directory / "train", "--validpref", directory / "train")
    required(
        deep("preprocess", "-s", "de", "-t", "en", *texts, *dictionary, "--destdir", directory / "data-bin"),
        directory / "log",
    )


def depth(args: argparse.Namespace, work: Path) -> None:
    """A deep model: its training of two updates, each saved, then what is made of its checkpoints."""
    write_made_up(work, args.vocabulary)
    log, run = work / "log", work / "run"
    heads = ("--encoder-attention-heads", 2, "--decoder-attention-heads", 2)
    model = ("--arch", args.arch, *sizes_of(args.layers, args.width), *heads)
    training = ("--max-update", 2, "--max-tokens", args.max_tokens, "--lr", 1e-4, "--disable-validation")
    saved = ("--save-interval-updates", 1, "--no-epoch-checkpoints", "--save-dir", run)
    train = deep("train", work / "data-bin", *model, *training, "--criterion", args.criterion, *saved)
    found = {
        "imports alone": required(deep("train", "--help"), log),
        "2 updates, 3 checkpoints": required([*train, "--log-interval", 1], log),
    }
    checkpoints = sorted(run.glob("checkpoint_*_*.pt"))
    size = checkpoints[-1].stat().st_size
    found["resume, nothing to do"] = required(train, log)
    averaged = work / "averaged.pt"
    found["average of 2"] = required(deep("average", "--inputs", *checkpoints, "--output", averaged), log)
    found["fold"] = required(deep("fold", averaged, work / "folded.pt"), log)
    found["fsck of 3"] = required(deep("fsck", run), log)
    weights = averaged.stat().st_size
    print(f"weights: {weights / MB:.0f} MB, a checkpoint: {size / MB:.0f} MB")
    base = found["imports alone"].memory
    rows = [
        [name, f"{one.seconds:.0f}", f"{one.memory / MB:.0f}", f"{(one.memory - base) / weights:.1f}"]
        for name, one in found.items()
    ]
    print_table(("command", "s", "memory, MB", "above the imports, in weights"), rows)


# --- observers ------------------------------------------------------------------------------------------------------


def observers(args: argparse.Namespace, work: Path) -> None:
    """Recorder and guard of one trainer, driven by made-up updates; only what is recorded has a real pass."""
    trainer, sample = trainer_of(args, work)
    log = work / "log"
    logging.getLogger().addHandler(logging.FileHandler(log, encoding="utf-8"))
    criterion, generator = trainer.get_criterion(), random.Random(1)

    def stock(trainer: Trainer, samples: list[dict[str, Any]]) -> Any:
        """A stand-in for fairseq's own ``train_step``."""
        if criterion.watch is not None:
            trainer.zero_grad()
            criterion(trainer.get_model(), sample)[0].backward()
        else:
            size = sample["ntokens"]
            loss = size * generator.gauss(5.0, 0.05) * (3 if calls % args.spikes == 57 else 1)
            for listener in criterion.listeners:
                listener((loss, size, {"loss": loss, "nll_loss": loss, "ntokens": size, "sample_size": size}))
        norm = torch.tensor(math.exp(generator.gauss(0.0, 0.1)))
        guard.judge(lambda trainer, limit: recording.clip(lambda *_: norm, trainer, limit), trainer, 1.0)
        trainer.set_num_updates(trainer.get_num_updates() + 1)
        return {}

    # Processor time: the updates are short, and a shared machine counts in the wall clock.
    rows, tenth, begun = [], args.updates // 10, time.process_time()
    for calls in range(1, args.updates + 1):
        with metrics.aggregate("train"):
            guard.step(lambda trainer, samples: recording.step(stock, trainer, samples), trainer, [sample])
        if calls % tenth == 0:
            seconds, recorded = time.process_time() - begun, work / "recorder.jsonl"
            row = [f"{calls:,}", f"{1e6 * seconds / tenth:.0f}", f"{memory_of(os.getpid()) / MB:.1f}"]
            row.append(f"{recorded.stat().st_size / MB:.2f}")
            print(row, file=sys.stderr, flush=True)
            rows.append([*row, log.stat().st_size // 1000])
            begun = time.process_time()
    titles = ("updates", "processor µs each", "memory, MB", "recorder.jsonl, MB", "log, kB")
    print_table(titles, rows)


def trainer_of(args: argparse.Namespace, work: Path) -> tuple[Trainer, dict[str, Any]]:
    """A trainer with a recorder and a guard, and a batch."""
    flags = ["--criterion", "label_smoothed_cross_entropy_with_diagnostics", "--cpu", "--save-dir", str(work)]
    flags += ["--diagnostics-interval", str(args.interval), "--divergence-action", "skip", "--divergence-plateau", "0"]
    size = Size(args.layers, args.layers, 16, 2, 100)
    return make_trainer(args.arch, size, flags), make_batch(2, 5, 100)


PARTS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "prepare": prepare,
    "translate": translate,
    "depth": depth,
    "observers": observers,
}


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    flags = {name: parts.add_parser(name, description=part.__doc__) for name, part in PARTS.items()}
    for each in flags.values():
        each.add_argument("--work", type=Path, help="an empty directory; default: a temporary one")
    add_text(flags["prepare"], 1_000_000)
    flags["prepare"].add_argument("--merges", type=int, default=8000)
    flags["prepare"].add_argument("--workers", type=int, default=2)
    add_text(flags["translate"], 100_000)
    flags["translate"].add_argument("--width", type=int, default=64)
    flags["translate"].add_argument("--updates", type=int, default=300)
    flags["translate"].add_argument("--beam", type=int, default=1)
    flags["translate"].add_argument("--processes", type=int, default=1)
    flags["depth"].add_argument("--layers", type=int, default=100, help="on each side")
    flags["depth"].add_argument("--width", type=int, default=64)
    flags["depth"].add_argument("--vocabulary", type=int, default=50_000)
    flags["depth"].add_argument("--max-tokens", type=int, default=500)
    flags["depth"].add_argument("--arch", default="admin_transformer")
    flags["depth"].add_argument("--criterion", default="cross_entropy")
    flags["observers"].add_argument("--updates", type=int, default=100_000)
    flags["observers"].add_argument("--interval", type=int, default=100)
    flags["observers"].add_argument("--layers", type=int, default=2, help="on each side")
    flags["observers"].add_argument("--spikes", type=int, default=1000, help="one update in so many has a large loss")
    flags["observers"].add_argument("--arch", default="admin_transformer")
    args = parser.parse_args()
    logging.getLogger().handlers.clear()
    with tempfile.TemporaryDirectory() as place:
        PARTS[args.part](args, args.work or Path(place))


if __name__ == "__main__":
    main()
