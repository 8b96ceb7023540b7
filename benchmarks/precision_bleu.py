"""BLEU of every method under each ``--decode-precision``, beside float32, on real text.

Each method is trained for some hundred updates on a prepared directory, packaged, and translates the same raw text in
every precision. A row of the result is a line of JSON, so that an interrupted run goes on. Run it from the repository's
root: ``python benchmarks/precision_bleu.py DATA OUT``, with DATA of ``scripts/prepare_multi30k.sh``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from common import METHODS, machine
from engines_time import with_engine
from sacrebleu.metrics import BLEU

from fairseq_plugins.search.precision import PRECISIONS

FULL = PRECISIONS[0]
SETTINGS = ("data", "test_sets", "precisions", "languages", "layers", "width", "updates")
"""Arguments that a row depends on: one with others is not used again."""
RECIPES: dict[str, tuple[str, ...]] = {
    "rezero": ("--warmup-init-lr", "2e-3"),
    "t_fixup": ("--warmup-init-lr", "2e-3"),
    "branch_norm": ("--branch-norm-updates", "200"),
}
"""Without warm-up, as published; branches at full size when the warm-up ends."""


def deep(*words: object) -> None:
    """Run ``fairseq-deep`` in a process of its own.

    Raises:
        CalledProcessError: it failed.
    """
    subprocess.run([sys.executable, "-m", "fairseq_plugins.tools.cli", *map(str, words)], check=True)


def train(method: str, args: argparse.Namespace) -> Path:
    """Train a method and package its last checkpoint; the directory of the package."""
    run = args.out / method
    if not (run / "package").exists():
        sizes = {"embed-dim": args.width, "ffn-embed-dim": 2 * args.width, "attention-heads": 4, "layers": args.layers}
        deep(
            *("train", args.data / "data-bin", "--arch", f"{method}_transformer", "--save-dir", run),
            *(word for side in ("encoder", "decoder") for name, n in sizes.items() for word in (f"--{side}-{name}", n)),
            *("--share-all-embeddings", "--dropout", 0.1, "--criterion", "label_smoothed_cross_entropy"),
            *("--label-smoothing", 0.1, "--optimizer", "fused_adam", "--adam-betas", "(0.9, 0.98)"),
            *("--lr", 2e-3, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", 200, "--clip-norm", 1.0),
            *("--max-tokens", 2000, "--max-update", args.updates, "--seed", 1, "--cpu", "--num-workers", 0),
            *("--no-epoch-checkpoints", "--disable-validation", "--amp", "--log-format", "none"),
            *RECIPES.get(method, ()),
        )
        deep("package", run / "checkpoint_last.pt", run / "package", "--data", args.data)
    return run / "package"


def measure(method: str, sets: Sequence[tuple[Path, Path]], args: argparse.Namespace) -> dict[str, Any]:
    """A row: BLEU of each precision, and the share of sentences that are float32's."""
    package = train(method, args)
    texts, references = (
        [line for pair in sets for line in pair[side].read_text(encoding="utf-8").splitlines()] for side in (0, 1)
    )
    found: dict[str, list[str]] = {}
    metric = BLEU()
    for precision in (FULL, *args.precisions.split(",")):
        found[precision] = [each.text for each in with_engine(package, "lean", precision).translate(texts)]
    return {
        "method": method,
        "bleu": {name: metric.corpus_score(lines, [references]).score for name, lines in found.items()},
        "same": {name: sum(map(str.__eq__, lines, found[FULL])) / len(texts) for name, lines in found.items()},
        "signature": str(metric.get_signature()),
    }


def rows_of(written: Path, settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows that were measured with the same settings; a file may have others beside them."""
    rows = [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []
    return [row for row in rows if row.get("settings") == settings]


def report(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table: float32, and the difference of each other precision with the share of equal sentences."""
    others = [name for name in rows[0]["bleu"] if name != FULL]
    lines = [
        f"| method | {FULL} | {' | '.join(f'{name} (same sentences)' for name in others)} |",
        f"|---|---:|{'---:|' * len(others)}",
    ]
    for row in rows:
        base = row["bleu"][FULL]
        cells = [f"{row['bleu'][name] - base:+.2f} ({row['same'][name]:.0%})" for name in others]
        lines.append(f"| `{row['method']}` | {base:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is asked for and not there yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a prepared directory")
    parser.add_argument(
        "out", type=Path, help="models, and rows.jsonl; rows with the same settings are not measured again"
    )
    parser.add_argument("--methods", default=",".join(METHODS), help="default: all methods")
    parser.add_argument("--test-sets", default="test", help="raw texts of DATA, translated as one")
    parser.add_argument("--precisions", default="bf16,int8", help=f"beside {FULL}")
    parser.add_argument("--languages", default="de,en")
    parser.add_argument("--layers", type=int, default=2, help="on each side")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    source, target = args.languages.split(",")
    raw = args.data / "raw"
    sets = [(raw / f"{name}.{source}", raw / f"{name}.{target}") for name in args.test_sets.split(",")]
    args.out.mkdir(parents=True, exist_ok=True)
    written = args.out / "rows.jsonl"
    settings = {name: str(getattr(args, name)) for name in SETTINGS}
    for method in args.methods.split(","):
        if not any(row["method"] == method for row in rows_of(written, settings)):
            row = {**measure(method, sets, args), "settings": settings}
            with written.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(method, json.dumps(row["bleu"]), flush=True)
    rows = rows_of(written, settings)
    print(f"\n{machine('cpu')}; {rows[0]['signature']}\n\n{report(rows)}")


if __name__ == "__main__":
    main()
