"""What commands print beside their results: a short log at the start of a training, in an encoding that can hold it."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.cli.main import main
from tests import processes, toy

NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}


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


@pytest.mark.slow
@pytest.mark.parametrize("module", ["fairseq_plugins.cli generate", "fairseq_cli.generate"])
def test_generate_without_a_locale(module: str, toy_data: Path, tmp_path: Path) -> None:
    model = toy.train_toy(toy_data, tmp_path, "--max-update", "1", arch="admin_transformer")
    own = [] if "plugins" in module else ["--user-dir", "fairseq_plugins"]
    words = [*module.split(), str(toy_data), "--path", str(model), "--cpu", "--beam", "1", *own]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, **NO_LOCALE}
    ended = subprocess.run([sys.executable, "-m", *words], capture_output=True, cwd=root, env=environment)
    assert ended.returncode == 0, ended.stderr.decode()
    assert "fünf" in ended.stdout.decode("utf-8")


def test_a_mistake_without_a_locale_is_a_line() -> None:
    ended = processes.python("-m", "fairseq_plugins.cli", "übersetze", **NO_LOCALE)
    assert (ended.code, ended.output) == (2, "")
    assert ended.errors.startswith(r"error: unknown command '\udcc3\udcbcbersetze'")
