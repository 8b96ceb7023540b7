"""A training sentence that does not fit into ``--max-tokens`` is never left out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq.trainer import Trainer

from fairseq_plugins.process import users_mistake
from tests import toy
from tests.patches.conftest import Unpatch

LONGEST = 10
"""Nine words and the end mark."""


def train(data: Path, max_tokens: int, *flags: str) -> None:
    toy.train_toy(data, data, "--max-update", "1", "--max-tokens", str(max_tokens), "--no-save", *flags)


def test_training_stops_at_a_longer_sentence(toy_data: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        train(toy_data, LONGEST - 1)
    line = str(users_mistake(caught.value))
    assert line.startswith(
        "--max-tokens 9 is smaller than the longest sentence, which has 10 tokens: use at least --max"
    )
    train(toy_data, LONGEST)
    train(toy_data, 7, "--max-source-positions", "7", "--max-target-positions", "7")


def test_stock_leaves_sentences_out(toy_data: Path, unpatch: Unpatch, caplog: pytest.LogCaptureFixture) -> None:
    unpatch(Trainer, "get_train_iterator")
    train(toy_data, 7)
    assert "samples have invalid sizes and will be skipped" in caplog.text
