"""From half to full precision in the middle of a training: not a bit of weights or moments is lost."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import tasks
from fairseq.optim import FP16Optimizer

from fairseq_plugins.errors import UserError
from fairseq_plugins.observe.guard import precision
from fairseq_plugins.observe.recorder import read
from tests import toy
from tests.observe.guard.common import checkpoint, differing
from tests.observe.guard.conftest import Faults, Training

FP32 = ("--divergence-action", "fp32")
ADAM = "FairseqAdam"


def fails_in_half(faults: Faults, call: int, by: float = math.nan) -> None:
    """The loss of a batch is multiplied as long as it is computed in half precision."""
    faults.loss = lambda now, loss: loss * by if now == call and precision.is_half(faults.trainers[-1]) else loss


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--amp",), marks=pytest.mark.slow),
        pytest.param(("--memory-efficient-bf16",), marks=pytest.mark.slow),
        ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "16"),
    ],
)
def test_it_goes_on_as_a_training_in_full_precision(
    training: Training, faults: Faults, said: Callable[[], list[str]], flags: tuple[str, ...]
) -> None:
    # What is not finite ends fairseq's automatic mixed precision on a CPU before it comes to the guard.
    fails_in_half(faults, 3, by=50.0 if "--amp" in flags else math.nan)
    run = training.run("run", *flags, *FP32, updates=6)
    (line,) = said()
    assert "; fp32: the training continues in full precision, from this update on" in line
    assert [(entry.update, entry.applied) for entry in read(run / "recorder.jsonl")] == [
        (1, True),
        (2, True),
        (3, False),
        (3, True),
        (4, True),
        (5, True),
        (6, True),
    ]
    last = checkpoint(run)
    assert {value.dtype for value in last["model"].values()} == {torch.float32}
    assert last["optimizer_history"][-1]["optimizer_name"] == ADAM
    assert not any(last["cfg"]["common"][flag] for flag in precision.FLAGS)
    # Stopped before the fault and continued by hand: the weights and moments of then, in full precision.
    faults.loss = lambda now, loss: loss
    before = checkpoint(training.run("half", *flags, updates=2))
    before["model"] = {name: value.float() for name, value in before["model"].items()}
    before["last_optimizer_state"].pop("loss_scale", None)
    before["optimizer_history"][-1]["optimizer_name"] = ADAM
    torch.save(before, training.directory / "half" / "checkpoint_last.pt")
    by_hand = checkpoint(training.run("half", updates=6))
    if "--bf16" not in flags and "--fp16-no-flatten-grads" not in flags:
        assert differing(last, by_hand) == []
    # Master weights are not in a checkpoint of fairseq's, only what half precision has left of them.
    for name, value in by_hand["model"].items():
        torch.testing.assert_close(last["model"][name], value, rtol=0.02, atol=0.01)


def test_a_training_that_has_changed_is_resumed(training: Training, faults: Faults) -> None:
    """In full precision, however it is asked for; in half precision without a guard it is refused."""
    fails_in_half(faults, 3)
    whole = checkpoint(training.run("whole", "--bf16", *FP32, updates=6))
    stopped = training.run("0", "--bf16", *FP32, updates=4)
    faults.loss = lambda now, loss: loss
    for number, flags in enumerate((("--bf16", *FP32), ()), start=1):
        shutil.copytree(stopped, training.directory / str(number))
        assert differing(checkpoint(training.run(str(number), *flags, updates=6)), whole) == []
    with pytest.raises(UserError, match="trained in another precision or with another optimizer: use the flags"):
        training.run("0", "--bf16", updates=6)


@pytest.mark.parametrize("decay", [(), ("--weight-decay", "0.01", "--no-weight-decay-on", "bias")])
@pytest.mark.parametrize("flat", [True, False])
def test_weights_and_moments_are_the_masters(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decay: tuple[str, ...], flat: bool
) -> None:
    """Bit for bit, in the order of the model's parameters, with and without groups of parameters."""
    cfg = toy.parse_training(toy_data, tmp_path, "--fp16", *decay, arch="admin_transformer")
    cfg.common.fp16_no_flatten_grads = not flat
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model).half()
    # fairseq names the place of flat weights after a GPU; on a CPU the name is None.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    optimizer = FP16Optimizer.build_optimizer(cfg, list(model.parameters()))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer._needs_sync = True
    optimizer.step()
    parameters = list(optimizer.fp16_params)
    masters = torch.cat([one.detach().flatten() for one in optimizer.params])
    moments = torch.cat([optimizer.optimizer.state[one]["exp_avg"].flatten() for one in optimizer.params])
    order = [one for group in optimizer.param_groups for one in group["params"]]
    if not flat:
        pairs = dict(zip(optimizer.fp32_params, parameters, strict=True))
        parameters = [pairs[one] for one in order]
    assert masters.dtype == torch.float32
    scheduler = SimpleNamespace(optimizer=optimizer)
    trainer: Any = SimpleNamespace(
        _optimizer=optimizer,
        _lr_scheduler=scheduler,
        _ema=None,
        cfg=cfg,
        get_model=lambda: model,
        get_criterion=lambda: torch.nn.Identity(),
    )
    precision.to_full(trainer)
    full = trainer._optimizer
    assert torch.equal(torch.cat([one.detach().flatten() for one in parameters]), masters)
    assert list(map(id, full.params)) == list(map(id, parameters))
    assert torch.equal(torch.cat([full.optimizer.state[one]["exp_avg"].flatten() for one in full.params]), moments)
    assert {full.optimizer.state[one]["step"] for one in full.params} == {1}
    assert [len(group["params"]) > 0 for group in full.param_groups] == [True] * (2 if decay else 1)
    assert scheduler.optimizer is full
