"""fp16 without a GPU: one line that says what to do, at the start or at the first overflow."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from tests import toy

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_flat_master_weights(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--fp16 needs a GPU; on a CPU leave out --fp16 \(in hydra-"):
        toy.train_toy(toy_data, tmp_path, "--fp16", "--max-update", "1")


def test_stock_asks_for_cuda(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "__init__", inspect.unwrap(Trainer.__init__))
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
        toy.train_toy(toy_data, tmp_path, "--fp16", "--max-update", "1")


def test_overflow(toy_data: Path, tmp_path: Path) -> None:
    flags = ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", str(2**40), "--max-update", "2")
    with pytest.raises(UserError, match="gradient overflow"):
        toy.train_toy(toy_data, tmp_path, *flags)
