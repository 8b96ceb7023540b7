"""What differs between a checkpoint and the model is counted and named, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.damaged_settings import load_or_explain
from tests import toy


def test_restore_of_a_deeper_and_wider_model(toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    flags = ("--encoder-layers", "3", "--decoder-layers", "1", "--decoder-ffn-embed-dim", "48", "--max-update", "5")
    with pytest.raises(UserError) as caught:
        toy.train_toy(toy_data, tmp_path / "run", "--restore-file", str(toy_checkpoint), *flags)
    message = str(caught.value)
    assert "\n" not in message
    assert str(toy_checkpoint) in message
    # An encoder layer holds 16 tensors, a decoder layer 26; fc1 and its bias and fc2 depend on the inner width.
    assert "16 weights are missing from it (encoder.layers.2." in message
    assert "26 weights are unknown to the model (decoder.layers.1." in message
    assert "3 weights have another shape (decoder.layers.0.fc1.weight: (32, 16) in it, (48, 16) in the model" in message


def test_generation_with_another_dictionary(toy_checkpoint: Path, tmp_path: Path) -> None:
    toy.write_corpus(tmp_path / "text", {"train": 30, "test": 8})
    for split in ("train", "test"):
        path = tmp_path / "text" / f"{split}.de"
        path.write_text(path.read_text(encoding="utf-8").replace("eins", "ein uns"), encoding="utf-8")
    # One more word; fairseq fills a dictionary up to a multiple of eight.
    data = toy.binarise_text(tmp_path, ("train", "test"))
    with pytest.raises(UserError, match=r"embed_tokens.weight: \(24, 16\) in it, \(32, 16\) in the model"):
        toy.translate_toy(data, toy_checkpoint, tmp_path / "results")


def test_a_failure_of_another_kind_keeps_its_trace(toy_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", broken)
    with pytest.raises(RuntimeError, match="boom"):
        checkpoint_utils.load_model_ensemble([str(toy_checkpoint)])


def test_each_file_of_an_ensemble_is_explained(toy_checkpoint: Path, tmp_path: Path) -> None:
    state = torch.load(toy_checkpoint, weights_only=True)
    state["cfg"]["model"]._name = "no_such_model"
    damaged = tmp_path / "damaged.pt"
    torch.save(state, damaged)

    def fails(filenames: list[str]) -> None:
        raise KeyError("boom")

    with pytest.raises(UserError, match=rf"^checkpoint {damaged} is damaged: unknown model 'no_such_model'"):
        load_or_explain(fails, [str(toy_checkpoint), str(damaged)])
    with pytest.raises(KeyError, match="boom"):
        load_or_explain(fails, [str(toy_checkpoint)])
