"""Reading what a guarded training has left."""

from __future__ import annotations

from pathlib import Path

import torch


def reports(run: Path) -> list[str]:
    return [path.read_text() for path in sorted((run / "divergence").glob("*.md"))]


def place_in(report: str) -> str:
    (line,) = [line for line in report.splitlines() if line.startswith("- **Where first**: ")]
    return line.split("`")[1]


def checkpoint(run: Path, name: str = "checkpoint_last.pt") -> dict:
    return torch.load(run / name, weights_only=True)


def differing(first: dict, second: dict) -> list[str]:
    """Names of the weights of two checkpoints that are not the same bit for bit."""
    one, other = first["model"], second["model"]
    assert list(one) == list(other)
    return [name for name, value in one.items() if not torch.equal(value, other[name])]
