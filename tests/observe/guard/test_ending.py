"""A training without a guard ends in one line too, however it diverges."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models.transformer import TransformerModel
from fairseq.trainer import Trainer

from fairseq_plugins.cli import main as cli
from fairseq_plugins.errors import DIVERGED_EXIT_CODE, Diverged, UserError
from fairseq_plugins.observe.guard.ending import check_norms
from fairseq_plugins.pipeline import ending
from fairseq_plugins.pipeline.fairseq_log import read_log
from tests import processes, toy

HALF = ("--fp16", "--memory-efficient-fp16", "--fp16-init-scale", "1", "--min-loss-scale", "1")
RATE = r"learning rate 1e\+06; first in "
FORWARD = (
    rf"{RATE}encoder\.layers\.0\.self_attn \(the output of \S+self_attn_layer_norm is the first that is not finite\)"
)


def end_of(training: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the log about what went wrong, and those of standard error."""
    assert cli.main(["train", *training]) == DIVERGED_EXIT_CODE
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    assert "tensor(" not in out
    return [line for line in err.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ((), rf"at update 2: the gradient norm is not a number; {FORWARD}"),
        (("--clip-norm", "0"), rf"at update 2: the gradient norm is not a number; {FORWARD}"),
        (("--bf16",), rf"at update 2: the gradient norm is not a number; {FORWARD}"),
        (("--amp",), rf"at update 2: the gradient norm is not finite; {FORWARD}"),
        (HALF, rf"at update 2: minimum loss scale reached; {RATE}encoder\.\S+ \(.*\)"),
        (
            ("--optimizer", "sgd", "--clip-norm", "1"),
            rf"at update \d: the gradient norm is \S+; {RATE}\S+ \((gradient_norm is \S+|the output of .*)\)",
        ),
        (
            ("--lr", "1e39", "--max-update", "1"),
            r"at update 1: \S+ and \d+ more weights, also in .*; learning rate 1e\+39",
        ),
        (("--lr", "1e38", "--max-update", "1"), r"at update 1: the validation loss is not a number; .* 1e\+38"),
    ],
)
def test_one_line_names_update_rate_and_place(
    toy_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: tuple[str, ...], line: str
) -> None:
    rate = ("--lr", "1000000", "--lr-scheduler", "fixed", "--warmup-updates", "0", "--max-update", "5")
    training = (str(toy_data), "--arch", "post_ln_transformer", *toy.TINY_MODEL, *toy.RECIPE, *rate, *flags)
    (said,) = end_of((*training, "--save-dir", str(tmp_path)), capfd)
    assert re.fullmatch(f"error: diverged {line}", said), said


def test_one_line_of_two_processes(
    toy_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.fork_ranks(monkeypatch)
    rate = ("--lr", "1000000", "--lr-scheduler", "fixed", "--warmup-updates", "0", "--max-update", "5")
    training = (
        str(toy_data),
        "--arch",
        "post_ln_transformer",
        *toy.TINY_MODEL,
        *toy.RECIPE,
        *rate,
        "--distributed-world-size",
        "2",
    )
    (said,) = end_of((*training, "--save-dir", str(tmp_path)), capfd)
    assert re.fullmatch(rf"error: diverged at update 2: the gradient norm is not a number; {FORWARD}", said)


def spoil_weight(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model.encoder.layers[1].fc1.weight[0, 0] = math.nan


def spoil_gradient(model: torch.nn.Module) -> None:
    def hook(module: Any, inputs: Any, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: torch.full_like(gradient, math.nan))

    model.encoder.layers[1].fc1.register_forward_hook(hook)


@pytest.mark.parametrize(
    ("spoil", "place", "saved"),
    [
        (spoil_weight, "encoder.layers.1.ffn (the output of encoder.layers.1.fc1 is the first that", False),
        (spoil_gradient, "encoder.layers.1.ffn (gradient_norm is nan)", True),
    ],
)
def test_a_stock_model_is_searched_too(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, place: str, saved: bool
) -> None:
    build = TransformerModel.build_model.__func__

    def spoilt(cls: Any, args: Any, task: Any) -> Any:
        model = build(cls, args, task)
        spoil(model)
        return model

    monkeypatch.setattr(TransformerModel, "build_model", classmethod(spoilt))
    with pytest.raises(Diverged) as caught:
        toy.train_toy(toy_data, tmp_path, "--max-update", "1")
    assert f"; first in {place}" in str(caught.value)
    # The last state, unless nobody can use it; fairseq's own crash.pt has no position in the data.
    assert [path.name for path in tmp_path.rglob("*.pt")] == ["last.pt"] * saved


def test_log_and_pipeline_call_it_diverged(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = LabelSmoothedCrossEntropyCriterion.compute_loss
    monkeypatch.setattr(
        LabelSmoothedCrossEntropyCriterion,
        "compute_loss",
        lambda *args, **kwargs: tuple(loss * math.inf for loss in compute(*args, **kwargs)),
    )
    log = tmp_path / "train.log"
    with pytest.raises(Diverged) as caught:
        toy.train_toy(toy_data, tmp_path, "--max-update", "1", "--log-file", str(log))
    for handler in list(logging.getLogger("fairseq_cli.train").handlers):
        logging.getLogger("fairseq_cli.train").removeHandler(handler)
        handler.close()
    reason = str(caught.value).removeprefix("diverged at update 1: ")
    assert read_log(log).divergence == reason
    # The same from the line of the terminal alone.
    log.write_text(f"error: {caught.value}\n")
    assert ending.say_how_it_ended(tmp_path, DIVERGED_EXIT_CODE, log, since=0).sentence() == (
        f"diverged after 0 updates, 0 epochs ({reason})"
    )
    assert json.loads((tmp_path / "finished").read_text())["reason"] == reason


def test_processes_with_different_gradients_are_a_mistake() -> None:
    def check(trainer: Trainer) -> None:
        trainer._grad_norm_buf = torch.tensor([1.0, 2.0])
        raise FloatingPointError("Fatal error: gradients differ. Try x.\n---\nrank   0 = 1.0\nrank   1 = 2.0\n---")

    with pytest.raises(UserError, match=r"^gradients differ\. Try x\. Gradient norms: rank   0 = 1.0, rank   1 = 2.0$"):
        check_norms(check, Trainer.__new__(Trainer))
