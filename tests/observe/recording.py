"""Flags of ``fairseq-train`` that record every update, and overflows on a CPU."""

import pytest
import torch

ON = ("--criterion", "label_smoothed_cross_entropy_with_diagnostics", "--diagnostics-interval", "1")
FEW = ("--no-epoch-checkpoints", "--max-update")


def overflow_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq moves one number to a GPU when it skips an overflow; that is all that keeps it from doing so on a CPU."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
