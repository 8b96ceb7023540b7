"""``--bf16`` leaves the TPU alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq import options

from tests import toy
from tests.patches.conftest import Unpatch


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_trains_here(flag: str, toy_data: Path, tmp_path: Path) -> None:
    checkpoint = toy.train_toy(toy_data, tmp_path, flag, "--max-update", "3")
    state = torch.load(checkpoint, weights_only=True)
    # fairseq stores every weight in float32; what bfloat16 cannot hold would show.
    assert all(torch.equal(weight, weight.bfloat16().float()) for weight in state["model"].values())
    assert state["optimizer_history"][-1]["num_updates"] == 3


def test_a_tpu_that_was_asked_for_stays_and_stock_always_means_one(
    toy_data: Path, tmp_path: Path, unpatch: Unpatch
) -> None:
    assert toy.parse_training(toy_data, tmp_path, "--bf16", "--tpu").common.tpu
    unpatch(options, "parse_args_and_arch")
    assert toy.parse_training(toy_data, tmp_path, "--bf16").common.tpu
