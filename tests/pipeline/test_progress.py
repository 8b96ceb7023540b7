"""What the user sees of a training while it runs: one line that is renewed, validations, sample translations."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from fairseq_plugins.tools.pipeline import progress as module
from fairseq_plugins.tools.pipeline.fairseq_log import LogReader, TrainingLog
from fairseq_plugins.tools.pipeline.progress import Progress, Screen, glance, status

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
GLANCE = "40/100 updates, train loss 4.25, valid 3.50 bits/token, 1,200 tokens/s, ETA 0:02:00"

ERASED = "\r\x1b[K"


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
    first = "20/100 updates, train loss 9.00, 1,200 tokens/s, ETA 0:02:40"
    assert terminal.getvalue() == f"{ERASED}{first}"
    log.write_text(log.read_text() + SECOND)
    progress.poll()
    permanent = "".join(f"{ERASED}{line}\n{first}" for line in SHOWN.splitlines())
    assert terminal.getvalue() == f"{ERASED}{first}{permanent}{ERASED}{GLANCE}"


def test_a_line_that_is_too_long_to_be_erased_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    Screen(terminal).show("x" * 200)
    assert terminal.getvalue() == f"{ERASED}{'x' * 39}"


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


def test_trainings_at_a_glance(tmp_path: Path) -> None:
    log = TrainingLog()
    assert status(log) == "starting"
    for line in SECOND.splitlines():
        log.take(line)
    assert status(log) == "40 updates, train loss 4.25, valid 3.50 bits/token, 1,200 tokens/s"
    runs = [tmp_path / name for name in ("a/seed1", "b/seed1", "c/seed1", "b/seed2")]
    logs = {run: LogReader(run / "train.log") for run in runs}
    for run in runs[:2]:
        run.mkdir(parents=True)
        (run / "train.log").write_text(FIRST)
    assert glance(logs) == "a: 20/100 updates, b: 20/100 updates"
    (runs[0] / "finished").touch()
    assert glance(logs) == "b: 20/100 updates, train loss 9.00, 1,200 tokens/s, ETA 0:02:40"
    runs[3].mkdir()
    assert glance(logs) == "b/seed1: 20/100 updates, b/seed2: starting"
    for run in (runs[1], runs[3]):
        (run / "finished").touch()
    assert glance(logs) == ""
