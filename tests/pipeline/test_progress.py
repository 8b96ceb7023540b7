"""What the user sees of a training while it runs: one line that is renewed, validations, sample translations."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from fairseq_plugins.pipeline import progress as module
from fairseq_plugins.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.pipeline.progress import Progress, Screen, duration, status

FIRST = """\
2026-01-01 | INFO | fairseq_cli.train | {'optimization': {'max_update': 100}}
2026-01-01 | INFO | train_inner | {"epoch": 1, "nll_loss": "9", "wps": "1200", "ups": "0.5", "num_updates": "20"}
"""
SECOND = """\
2026-01-01 | INFO | train_inner | {"epoch": 1, "nll_loss": "4.25", "wps": "1200", "ups": "0.5", "num_updates": "40"}
2026-01-01 | WARNING | fairseq.trainer | a warning
2026-01-01 | INFO | fairseq.tasks.translation | example hypothesis: a man
2026-01-01 | INFO | fairseq.tasks.translation | example reference: a dog
2026-01-01 | INFO | fairseq.tasks.translation | example hypothesis: two men
2026-01-01 | INFO | fairseq.tasks.translation | example reference: two dogs
2026-01-01 | INFO | fairseq.tasks.translation | example hypothesis: not shown
2026-01-01 | INFO | valid | {"epoch": 1, "valid_nll_loss": "3.5", "valid_bleu": "21.3", "valid_num_updates": "40"}
"""
SHOWN = """\
2026-01-01 | WARNING | fairseq.trainer | a warning
validation after 40 updates: 3.50 bits/token, BLEU 21.30
  hypothesis  a man
  reference   a dog
  hypothesis  two men
  reference   two dogs
"""
GLANCE = "   40/100 updates  train loss 4.25  valid 3.50 bits/token  1,200 tokens/s  ETA 2:00"


class Terminal(io.StringIO):
    """A terminal that keeps what was written."""

    def isatty(self) -> bool:
        return True


def test_one_line_is_renewed_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    log, terminal = tmp_path / "train.log", Terminal()
    log.write_text("of an earlier attempt\n" + FIRST)
    progress = Progress(log, len("of an earlier attempt\n"), Screen(terminal))
    progress.poll()
    first = "   20/100 updates  train loss 9.00  1,200 tokens/s  ETA 2:40"
    assert terminal.getvalue() == f"{first}\n"
    log.write_text(log.read_text() + SECOND)
    progress.poll()
    erased = "\x1b[1A\x1b[J"
    permanent = "".join(f"{erased}{line}\n{first}\n" for line in SHOWN.splitlines())
    assert terminal.getvalue() == f"{first}\n{permanent}{erased}{GLANCE}\n"


def test_elsewhere_lines_are_printed_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    log, output = tmp_path / "train.log", io.StringIO()
    progress = Progress(log, 0, Screen(output))
    progress.poll()
    log.write_text(FIRST + SECOND)
    progress.poll()
    assert output.getvalue() == f"starting\n{SHOWN}"
    for _ in range(3):
        clock[0] += 20
        progress.poll()
    assert output.getvalue() == f"starting\n{SHOWN}{GLANCE}\n"


def test_a_training_goes_on_without_its_reader() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as output:
        screen = Screen(output)
        screen.say("nobody reads this")
        screen.say("nor this")


def test_a_training_at_a_glance() -> None:
    log = TrainingLog(max_update=100)
    assert status(log) == "starting"
    log.train_loss, log.valid_loss = {20: 5.0, 40: 4.25}, {40: 3.5}
    log.tokens_per_second, log.updates_per_second = {40: 1200.0}, 0.5
    assert status(log) == GLANCE
    log.max_update = None
    assert status(log) == "   40 updates  train loss 4.25  valid 3.50 bits/token  1,200 tokens/s"


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0, 75.4, 3599.7, 7260)] == ["0:00", "1:15", "1h00", "2h01"]


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
