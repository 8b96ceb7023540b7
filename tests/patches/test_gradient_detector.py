"""A gradient that is not a number ends a training with the name of the module, also in a model with an encoder."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.nan_detector import NanDetector
from torch import Tensor

from tests import toy

Spoil = Callable[[torch.nn.Module], None]


def weight_not_a_number(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model.encoder.layers[1].fc1.weight[0, 0] = math.nan


def gradient_not_a_number(model: torch.nn.Module) -> None:
    def spoil(gradient: Tensor) -> Tensor:
        return torch.full_like(gradient, math.nan)

    def hook(module: Any, inputs: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(spoil)

    model.encoder.layers[1].fc1.register_forward_hook(hook)


@pytest.fixture
def train(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Spoil], None]:
    def run(spoil: Spoil) -> None:
        build = TransformerModel.build_model.__func__

        def spoilt(cls: Any, args: Any, task: Any) -> Any:
            model = build(cls, args, task)
            spoil(model)
            return model

        monkeypatch.setattr(TransformerModel, "build_model", classmethod(spoilt))
        toy.train_toy(toy_data, tmp_path, "--max-update", "1", "--no-save")

    return run


def test_stock_ends_with_an_error_of_its_own(train: Callable[[Spoil], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NanDetector, "add_hooks", inspect.unwrap(NanDetector.add_hooks))
    with pytest.raises(StopIteration):
        train(weight_not_a_number)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (weight_not_a_number, ("NaN detected in output of encoder.layers.1.fc1, ", "forward")),
        (gradient_not_a_number, ("NaN detected in output of encoder.layers.1.fc1, ", "backward")),
    ],
)
def test_the_first_module_is_named(
    train: Callable[[Spoil], None], caplog: pytest.LogCaptureFixture, spoil: Spoil, said: tuple[str, str]
) -> None:
    with pytest.raises(FloatingPointError, match="gradients are Nan/Inf"):
        train(spoil)
    found = [record.getMessage() for record in caplog.records if "detected in output" in record.getMessage()]
    firsts = [message for message in found if said[1] in message]
    assert firsts[0].startswith(said[0])


def test_hooks_are_taken_away() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    with NanDetector(model):
        assert any(module._forward_hooks for module in model.modules())
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
