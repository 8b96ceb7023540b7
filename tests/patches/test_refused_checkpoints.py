"""What fairseq stores loads with torch's restricted unpickler, and only that."""

from __future__ import annotations

import pickle
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging import meters

from fairseq_plugins.patches import refused_checkpoints


@pytest.fixture
def stock_allow_list():
    """torch's own allow-list, while the test runs."""
    torch.serialization.clear_safe_globals()
    yield
    refused_checkpoints.apply()


def test_stock_refuses_its_own_checkpoint(toy_checkpoint: Path, stock_allow_list: None) -> None:
    with pytest.raises(pickle.UnpicklingError, match="Namespace"):
        torch.load(toy_checkpoint)
    foreign = torch.serialization.get_unsafe_globals_in_checkpoint(toy_checkpoint)
    assert {"argparse.Namespace", "numpy.ndarray", "numpy.dtype"} <= set(foreign)


def test_checkpoint_with_bleu_loads(toy_checkpoint: Path) -> None:
    assert torch.serialization.get_unsafe_globals_in_checkpoint(toy_checkpoint) == []
    state = checkpoint_utils.load_checkpoint_to_cpu(str(toy_checkpoint))
    assert state["cfg"].model.encoder_layers == 2
    assert state["optimizer_history"][-1]["num_updates"] == 4


@pytest.mark.parametrize("home", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_numbers_of_every_numpy_load(home: bytes, tmp_path: Path) -> None:
    path = tmp_path / "numbers.pt"
    stored = {"count": np.arange(3), "loss": np.float64(1.5), "best": np.float32(0.25), "n": np.int64(7)}
    # The old format keeps the names in plain sight, so another numpy's can be put in their place.
    torch.save(stored, path, _use_new_zipfile_serialization=False)
    written = path.read_bytes()
    assert b"numpy._core.multiarray" in written or b"numpy.core.multiarray" in written
    for name in (b"numpy._core.multiarray", b"numpy.core.multiarray"):
        written = written.replace(b"c" + name + b"\n", b"c" + home + b"\n")
    path.write_bytes(written)
    loaded = torch.load(path, weights_only=True)
    assert loaded["count"].tolist() == [0, 1, 2]
    assert (loaded["loss"], loaded["best"], loaded["n"]) == (1.5, 0.25, 7)


def test_meters_of_old_checkpoints_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = meters.AverageMeter(round=3)
    meter.update(2.5)
    monkeypatch.setattr(meters.AverageMeter, "__module__", "fairseq.meters")  # where they lived until 0.9
    torch.save({"train_meters": {"loss": meter}, "args": Namespace(arch="x")}, tmp_path / "old.pt")
    monkeypatch.undo()
    assert torch.load(tmp_path / "old.pt", weights_only=True)["train_meters"]["loss"].avg == 2.5
