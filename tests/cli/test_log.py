"""What commands print beside their results: a short log at the start of a training, in an encoding that can hold it."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest

from fairseq_plugins.process import log_as_fairseq_does
from fairseq_plugins.tools.cli.main import main
from tests import toy
from tests.refusals import refused


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_training_begins_with_few_lines(
    level: int, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.StringIO()
    root = logging.getLogger()
    file = tmp_path / "log.txt"
    flags = [*toy.TINY_MODEL, *toy.RECIPE, "--arch", "admin_transformer", "--max-update", "1", "--save-dir"]
    toy.forget_earlier_trainings()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", printed)
        patched.setattr(root, "handlers", [logging.StreamHandler(printed)])
        patched.setattr(root, "level", level)
        patched.setattr(logging.getLogger("fairseq_cli.train"), "handlers", [])
        assert main(["train", str(toy_data), *flags, str(tmp_path / "saved"), "--log-file", str(file)]) == 0
        assert not root.handlers[0].filters
    lines = printed.getvalue().splitlines()
    expected = (
        "model admin_transformer, encoder_layers 2, decoder_layers 2, encoder_embed_dim 16, criterion "
        "label_smoothed_cross_entropy, optimizer adam, lr [0.005], lr_scheduler inverse_sqrt, warmup_updates 4, "
        f"max_tokens 120, update_freq [1], max_update 1, max_epoch 0, seed 3, save_dir {tmp_path}/saved"
    )
    whole = file.read_text(encoding="utf-8")
    assert "DeepTransformerModel(\n" in whole
    assert whole.startswith("{'_name': None, 'common': {")
    if level == logging.DEBUG:
        assert "DeepTransformerModel(" in lines
        assert expected not in lines
        return
    assert lines[0] == expected
    assert "DeepTransformerModel(" not in lines
    start = lines.index("Start iterating over samples")
    assert start < 30
    for kept in ("num. shared model params: 12,448 (num. trained: 12,448)", f"{toy_data} train de-en 120 examples"):
        assert kept in lines[:start]


def test_a_level_that_does_not_exist_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGLEVEL", "verbose")
    line = "unknown LOGLEVEL 'VERBOSE' (did you mean 'ERROR'?); legal values: CRITICAL, DEBUG, ERROR, INFO, WARNING"
    assert refused(log_as_fairseq_does) == line
