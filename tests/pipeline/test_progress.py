"""Progress of trainings: a line each, redrawn in place on a terminal."""

from __future__ import annotations

import io

import pytest

from fairseq_plugins.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.pipeline.progress import Screen, duration, status


def test_a_training_at_a_glance() -> None:
    log = TrainingLog(max_update=100)
    assert status(log) == "starting"
    log.train_loss, log.valid_loss = {20: 5.0, 40: 4.25}, {40: 3.5}
    log.tokens_per_second, log.updates_per_second = {40: 1200.0}, 0.5
    assert status(log) == "   40/100 updates  train loss 4.25  valid 3.50 bits/token  1,200 tokens/s  ETA 2:00"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (75.4, "1:15"), (3599.7, "1h00"), (7260, "2h01")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_redrawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "6")
    terminal = Terminal()
    screen = Screen(terminal)
    screen.show(["one", "two"])
    screen.say("ended")
    screen.show([str(place) for place in range(10)])
    screen.show(["x" * 200])
    few, many = "\x1b[2A\x1b[J", "\x1b[5A\x1b[J"
    cut = "0\n1\n2\n3\n... 6 more lines\n"
    assert terminal.getvalue() == f"one\ntwo\n{few}ended\none\ntwo\n{few}{cut}{many}{'x' * 39}\n"
