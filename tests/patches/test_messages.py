"""Lines for dictionaries and checkpoints that do not fit, and nothing for errors that the user cannot mend.

What the commands say of their options is in ``tests/cli/test_mistakes.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.optim import FP16Optimizer
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from hydra.core.utils import JobReturn, JobStatus

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches import hydra_traces
from tests import toy
from tests.refusals import line_of

REMOVE = "; remove it"
DICTIONARIES = {
    b"a 3\nb\t3\n": "line 2: 'b\t3' is not a word and its count, separated by a space, not a tab",
    b"a 3\nb\n": "line 2: 'b' is not a word and its count",
    b"a 3\n\nb 3\n": "line 2: '' is not a word and its count",
    b"a 3\nb 1.5\n": "line 2: 'b 1.5' is not a word and its count",
    b"x" * 99: f"line 1: '{'x' * 80}' is not a word and its count",
    b"a 3\nb 2\na 1\n": f"line 3: the word 'a' is in line 1 already{REMOVE}",
    b"a 3\n<pad> 3\n": f"line 2: the word '<pad>' is one that fairseq adds itself{REMOVE}",
    b"a 3\nb\r3\n": "line 2: carriage return inside the line, where fairseq splits it; remove it",
    b"a 3\n\xff 3\n": "line 2: not UTF-8 (byte 0xff)",
    b"\xef\xbb\xbfa 3\n": "line 1: begins with a byte order mark; remove it",
}


def test_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    said = {}
    for content in DICTIONARIES:
        path.write_bytes(content)
        said[content] = line_of(Dictionary.load, str(path))
    assert said == {content: f"{path}: {line}" for content, line in DICTIONARIES.items()}
    path.write_text("a 3\nb c 2\n<pad> 1 #fairseq:overwrite\n", encoding="utf-8")
    assert Dictionary.load(str(path)).symbols[4:] == ["a", "b c", "<pad>"]


def test_a_checkpoint_of_a_deeper_and_wider_model(toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    flags = ("--encoder-layers", "3", "--decoder-layers", "1", "--decoder-ffn-embed-dim", "48", "--max-update", "5")
    line = line_of(toy.train_toy, toy_data, tmp_path / "run", "--restore-file", str(toy_checkpoint), *flags)
    assert line is not None
    assert line.startswith(f"checkpoint {toy_checkpoint} is of another architecture or dictionary: ")
    # An encoder layer holds 16 tensors, a decoder layer 26; fc1 and its bias and fc2 depend on the inner width.
    assert "16 weights are missing from it (encoder.layers.2." in line
    assert "26 weights are unknown to the model (decoder.layers.1." in line
    assert "3 weights have another shape (decoder.layers.0.fc1.weight: (32, 16) in it, (48, 16) in the model" in line


@pytest.mark.parametrize("kind", ["model", "task"])
def test_a_checkpoint_of_a_model_or_task_that_nobody_has_loaded(kind: str, toy_data: Path, tmp_path: Path) -> None:
    state = torch.load(toy.train_toy(toy_data, tmp_path, "--max-update", "1", arch="post_ln_transformer"))
    state["cfg"][kind]["_name"] = "mine"
    torch.save(state, tmp_path / "mine.pt")
    line = line_of(checkpoint_utils.load_model_ensemble, [str(tmp_path / "mine.pt")])
    assert line == f"the checkpoint's {kind} 'mine' is unknown: give the --user-dir that defines it"


def test_a_full_gpu_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    params = [torch.nn.Parameter(torch.zeros(2))]

    def full() -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "current_device", full)
    assert str(line_of(FP16Optimizer.build_fp32_params, None, params)).startswith("--fp16 needs a GPU")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert line_of(FP16Optimizer.build_fp32_params, None, params) is None


def test_a_task_without_data() -> None:
    line = line_of(TranslationTask.setup_task, TranslationConfig())
    assert str(line) == "task.data is not set: add +task.data=DIR to the command"


def test_a_failure_of_another_kind_keeps_its_trace(toy_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", broken)
    assert line_of(checkpoint_utils.load_model_ensemble, [str(toy_checkpoint)]) is None


def finished(status: JobStatus, value: object) -> JobReturn:
    job = JobReturn(overrides=[], status=status)
    job.return_value = value
    return job


def test_a_user_error_under_stock_hydra_ends_in_its_lines_and_code_2_and_all_else_is_hydras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = finished(JobStatus.FAILED, UserError(["first", "second"]))
    with pytest.raises(SystemExit) as end:
        _ = failed.return_value
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: first\nerror: second\n"
    with pytest.raises(KeyError):
        _ = finished(JobStatus.FAILED, KeyError("x")).return_value
    assert finished(JobStatus.COMPLETED, 7).return_value == 7
    # Hydra itself raises the user's mistake, too, into the handler that prints a trace.
    monkeypatch.setattr(JobReturn, "return_value", hydra_traces.STOCK_RESULT)
    with pytest.raises(UserError):
        _ = finished(JobStatus.FAILED, UserError("first")).return_value
