"""The GNMT form in trainings, and a model that computes no numbers."""

import json
import logging
import math
from pathlib import Path

import pytest
import torch

from fairseq_plugins.integrity import NON_FINITE_ALLOWED
from tests import toy
from tests.refusals import line_of


@pytest.mark.parametrize(("arch", "value"), [("transformer", math.nan), ("admin_transformer", 3e38)])
def test_a_model_that_computes_no_numbers_is_one_line(arch, value, toy_data, tmp_path, monkeypatch):
    """fairseq says ``AssertionError: 5 < 5``."""
    monkeypatch.setenv(NON_FINITE_ALLOWED, "1")
    path = toy.train_toy(toy_data, tmp_path, "--max-update", "1", "--no-epoch-checkpoints", arch=arch)
    state = torch.load(path, weights_only=True)
    for weight in state["model"].values():
        weight.fill_(value)
    torch.save(state, path)
    line = str(line_of(toy.translate_toy, toy_data, path, tmp_path / "results"))
    assert line.startswith("the model's log-probabilities are not finite, so no translation ends: ")


def test_bleu_while_training(toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The option text of the documentation, in a training that validates."""
    search = {"beam": 2, "max_len_b": 9, "lenpen": 0.6, "lenpen_form": "gnmt"}
    flags = ("--eval-bleu", "--eval-bleu-args", json.dumps(search), "--max-update", "2", "--no-epoch-checkpoints")
    with caplog.at_level(logging.INFO):
        toy.train_toy(toy_data, tmp_path, *flags, "--log-format", "json", validate=True)
    assert "length penalty of the GNMT form: ((5 + length) / 6) ** 0.6, the end mark counted" in caplog.text
    assert '"valid_bleu"' in caplog.text


def test_a_training_may_carry_the_search_of_its_evaluation(toy_data: Path, tmp_path: Path) -> None:
    """In a YAML file; but that of its own validation must be legal."""
    for given, message in (
        ('{"beem": 2}', "eval_bleu_args 'beem' (did you mean 'beam'?); legal values:"),
        ("{beam: 2}", "take JSON such as '{\"beam\": 4}': Expecting property name"),
        ("[2]", "take JSON such as '{\"beam\": 4}': "),
        ('{"max_len_b": 9, "lenpen_form": "gnmt"}', ""),
        ("", ""),
    ):
        validation = ["--eval-bleu", "--eval-bleu-args", given] if given else []
        config = toy.parse_training(toy_data, tmp_path, "--max-update", "1", *validation)
        config.generation.lenpen_form = "gnmt"
        if message:
            assert message in str(line_of(toy.run_training, config))
        else:
            toy.run_training(config)
        assert (tmp_path / "checkpoint_last.pt").exists() is not bool(message)
        (tmp_path / "checkpoint_last.pt").unlink(missing_ok=True)
