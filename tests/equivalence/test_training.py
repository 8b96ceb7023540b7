"""Training ``post_ln`` and ``pre_ln`` is training stock fairseq: the same losses and weights, update for update."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq.tasks.translation import TranslationTask

from tests.toy import binarise, train_toy

UPDATES = 12
BOTH = ("--encoder-normalize-before", "--decoder-normalize-before")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return binarise(tmp_path_factory.mktemp("toy"), {"train": 60})


def losses_and_weights(
    data: Path, save_dir: Path, monkeypatch: pytest.MonkeyPatch, arch: str, *flags: str
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The unrounded loss of every update, and the weights after the last."""
    losses: list[float] = []
    train_step = TranslationTask.train_step

    def listen(task: TranslationTask, *args: object, **kwargs: object) -> object:
        result = train_step(task, *args, **kwargs)
        losses.append(result[0].item())
        return result

    with monkeypatch.context() as patched:
        patched.setattr(TranslationTask, "train_step", listen)
        path = train_toy(
            data,
            save_dir,
            "--max-update",
            str(UPDATES),
            "--dropout",
            "0.2",
            "--attention-dropout",
            "0.1",
            "--share-all-embeddings",
            "--no-epoch-checkpoints",
            *flags,
            arch=arch,
        )
    return losses, torch.load(path, weights_only=True)["model"]


@pytest.mark.parametrize(
    ("arch", "ours", "stock"),
    [
        ("post_ln_transformer", (), ()),
        ("pre_ln_transformer", (), BOTH),
        ("post_ln_transformer", ("--norm", "post,pre"), BOTH[1:]),
    ],
    ids=["post_ln", "pre_ln", "hybrid"],
)
def test_losses_and_weights_are_equal(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arch: str,
    ours: tuple[str, ...],
    stock: tuple[str, ...],
) -> None:
    our_losses, our_weights = losses_and_weights(data, tmp_path / "ours", monkeypatch, arch, *ours)
    losses, weights = losses_and_weights(data, tmp_path / "stock", monkeypatch, "transformer", *stock)
    assert len(losses) == UPDATES
    assert our_losses == losses
    assert len(set(losses)) == UPDATES, "the model was learning"
    assert list(our_weights) == list(weights)
    assert [name for name in weights if not torch.equal(our_weights[name], weights[name])] == []
