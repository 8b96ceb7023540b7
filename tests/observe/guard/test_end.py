"""How a training that diverges looks from outside, with a guard and without: one line, one code, one verdict."""

import contextlib
import errno
import io
import json
import math
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.trainer import Trainer

from fairseq_plugins.errors import DIVERGED_EXIT_CODE, Diverged, UserError, raised_in_worker
from fairseq_plugins.tools.cli import main as cli
from fairseq_plugins.tools.observe.guard.guarding import record as guard_record
from fairseq_plugins.tools.observe.guard.installing import check_norms
from fairseq_plugins.tools.pipeline import resume
from fairseq_plugins.tools.pipeline.fairseq_log import read_log
from fairseq_plugins.tools.pipeline.verdicts import judge
from tests import processes, toy
from tests.observe.recording import ON

TOO_HIGH = ("--lr", "50", "--lr-scheduler", "fixed", "--clip-norm", "0", "--max-update", "20")


Ended = tuple[Path, int, str]


def error_line(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


@pytest.fixture(scope="module", params=["forked", pytest.param("spawned", marks=pytest.mark.slow)])
def ended(request: pytest.FixtureRequest, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A training in two processes whose learning rate is too high: its directory, exit code and standard error."""
    run = tmp_path_factory.mktemp("guard") / "a run"
    flags = [*toy.TINY_MODEL, *toy.RECIPE, "--disable-validation", *ON, *TOO_HIGH, "--divergence-action", "stop"]
    flags += ["--save-dir", str(run), "--distributed-world-size", "2", "--log-format", "json", "--log-interval", "1"]
    flags += ["--log-file", str(run / "train.log")]
    errors = io.StringIO()
    run.mkdir()
    with contextlib.redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
        if request.param == "forked":
            processes.fork_ranks(patch)
        code = cli.main(["train", str(toy_data), "--arch", "post_ln_transformer", *flags])
    return run, code, errors.getvalue()


def test_one_line_one_code_and_one_verdict(ended: tuple[Path, int, str], tmp_path: Path) -> None:
    run, code, said = ended
    assert code == DIVERGED_EXIT_CODE == 3
    assert "Traceback" not in said
    line = re.fullmatch(r"error: diverged at update \d+: (.+; first in \S+ \(.+\))", error_line(said))
    assert line
    log, judged = run / "train.log", judge(read_log(run / "train.log"), 3.0)
    assert (judged.outcome, judged.reason) == ("diverged", line[1])
    assert resume.say_how_it_ended(tmp_path, code, log, since=0).exit_code == 1
    written = json.loads((tmp_path / "finished").read_text())
    assert (written["outcome"], written["reason"]) == ("diverged", line[1])


def test_a_run_that_failed_to_train_is_called_that(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    text = "failed to train: training loss 9.01 bits a token after 4400 updates, the unigram baseline is 9.1"
    prefix = "2026-01-01 00:00:00 | INFO | fairseq_cli.train.guard | "
    log.write_text(f"{prefix}{guard_record(4400, f'{text}; stop', ends=text)}\nerror: {text}\n")
    assert resume.say_how_it_ended(tmp_path, 3, log, since=0).exit_code == 1
    assert json.loads((tmp_path / "finished").read_text())["outcome"] == "failed to train"
    assert judge(read_log(log), None).outcome == "failed to train"


def test_the_trace_of_a_process_is_told_apart() -> None:
    for kind in ("Diverged", "UserError"):
        found = raised_in_worker(f"-- Process 1 --\n  File x\nfairseq_plugins.errors.{kind}: what it says")
        assert (type(found).__name__, str(found)) == (kind, "what it says")
    assert raised_in_worker("fairseq_plugins.errors.UserError: handled\n\nValueError: but this was not") is None


HALF = "--fp16 --memory-efficient-fp16 --fp16-init-scale 1 --min-loss-scale 1"
RATE = r"learning rate 1e\+06; first in "
FORWARD = rf"{RATE}encoder\.layers\.0\.self_attn \(the output of \S+self_attn_layer_norm is the first that is .*\)"


ENDS = (
    ("", rf"at update 2: the gradient norm is not a number; {FORWARD}"),
    ("--clip-norm 0", rf"at update 2: the gradient norm is not a number; {FORWARD}"),
    ("--bf16", rf"at update 2: the gradient norm is not a number; {FORWARD}"),
    ("--amp", rf"at update 2: the gradient norm is not finite; {FORWARD}"),
    (HALF, rf"at update 2: minimum loss scale reached; {RATE}encoder\.\S+ \(.*\)"),
    ("--distributed-world-size 2", rf"at update 2: the gradient norm is not a number; {FORWARD}"),
    ("--lr 1e39 --max-update 1", r"at update 1: \S+ and \d+ more weights, also in .*; learning rate 1e\+39"),
    ("--lr 1e39 --max-epoch 1 --update-freq 99", r"at update 1: \S+ and \d+ more weights, also in .*; learning .*"),
    ("--lr 1e38 --max-update 1", r"at update 1: the validation loss is not a number; .* 1e\+38"),
)


@pytest.mark.parametrize(("flags", "line"), ENDS)
def test_one_line_names_update_rate_and_place(toy_data, tmp_path, capfd, monkeypatch, flags, line):
    processes.fork_ranks(monkeypatch)
    log = tmp_path / "train.log"
    training = ["--arch", "post_ln_transformer", *toy.TINY_MODEL, *toy.RECIPE, "--save-dir", str(tmp_path)]
    training += ["--log-file", str(log)]
    rate = "--lr 1000000 --lr-scheduler fixed --warmup-updates 0 --max-update 5"
    assert cli.main(["train", str(toy_data), *training, *rate.split(), *flags.split()]) == DIVERGED_EXIT_CODE
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    assert "tensor(" not in out
    said = error_line(err)
    assert re.fullmatch(f"error: diverged {line}", said), said
    # The log file says the same to programs.
    assert read_log(log).divergence == said.split(": ", 2)[2]


def spoil_weight(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model.encoder.layers[1].fc1.weight[0, 0] = math.nan


def spoil_gradient(model: torch.nn.Module) -> None:
    def hook(module: Any, inputs: Any, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: torch.full_like(gradient, math.nan))

    model.encoder.layers[1].fc1.register_forward_hook(hook)


@pytest.mark.parametrize(
    ("spoil", "place", "saved", "disk"),
    [
        (spoil_weight, "encoder.layers.1.ffn (the output of encoder.layers.1.fc1 is the first that", False, "free"),
        (spoil_gradient, "encoder.layers.1.ffn (gradient_norm nan since update 1)", True, "free"),
        (spoil_gradient, "encoder.layers.1.ffn (gradient_norm nan since update 1)", False, "full"),
    ],
)
def test_a_stock_model_is_searched_too(toy_data, tmp_path, monkeypatch, spoil, place, saved, disk):
    build = TransformerModel.build_model.__func__

    def spoilt(cls: Any, args: Any, task: Any) -> Any:
        model = build(cls, args, task)
        spoil(model)
        return model

    monkeypatch.setattr(TransformerModel, "build_model", classmethod(spoilt))
    if disk == "full":
        monkeypatch.setattr(torch, "save", mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(Diverged) as caught:
        toy.train_toy(toy_data, tmp_path, "--max-update", "1")
    assert f"; first in {place}" in str(caught.value)
    # The last state, unless nobody can use it; fairseq's own crash.pt has no position in the data.
    assert [path.name for path in tmp_path.rglob("*.pt")] == ["last.pt"] * saved


def test_processes_with_different_gradients_are_a_mistake() -> None:
    def check(trainer: Trainer) -> None:
        trainer._grad_norm_buf = torch.tensor([1.0, 2.0])
        raise FloatingPointError("Fatal error: gradients differ. Try x.\n---\nrank   0 = 1.0\nrank   1 = 2.0\n---")

    with pytest.raises(UserError, match=r"^gradients differ\. Try x\. Gradient norms: rank   0 = 1.0, rank   1 = 2.0$"):
        check_norms(check, Trainer.__new__(Trainer))
