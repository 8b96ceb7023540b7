"""Lines that a user sees of a running training: one now and then, validations, warnings."""

from fairseq_plugins.tools.pipeline import progress as module
from fairseq_plugins.tools.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.tools.pipeline.progress import Progress, status

FIRST = """\
2026-01-01 | INFO | fairseq_cli.train | {'optimization': {'max_update': 100}}
2026-01-01 | INFO | train_inner | {"epoch": 1, "nll_loss": "9", "wps": "1200", "ups": "0.5", "num_updates": "20"}
"""
SECOND = """\
2026-01-01 | INFO | train_inner | {"epoch": 1, "nll_loss": "4.25", "wps": "1200", "ups": "0.5", "num_updates": "40"}
2026-01-01 | WARNING | fairseq.trainer | a warning
2026-01-01 | INFO | valid | {"epoch": 1, "valid_nll_loss": "3.5", "valid_bleu": "21.3", "valid_num_updates": "40"}
"""
SHOWN = """\
2026-01-01 | WARNING | fairseq.trainer | a warning
validation after 40 updates: 3.50 bits/token, BLEU 21.30
"""
LATER = "40/100 updates, train loss 4.25, valid 3.50 bits/token, 1,200 tokens/s, ETA 0:02:00"


def test_lines_are_printed_now_and_then_and_not_of_an_earlier_attempt(tmp_path, monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    log, earlier = tmp_path / "train.log", SECOND.replace("21.3", "1.0")
    log.write_text(earlier)
    progress = Progress(log, len(earlier))
    progress.poll()
    log.write_text(earlier + FIRST + SECOND)
    progress.poll()
    assert capsys.readouterr().out == f"starting\n{SHOWN}"
    for _ in range(3):
        clock[0] += 20
        progress.poll()
    assert capsys.readouterr().out == f"{LATER}\n"


def test_a_training_without_a_limit_has_no_time_left() -> None:
    log = TrainingLog()
    for line in SECOND.splitlines():
        log.take(line)
    assert status(log) == "40 updates, train loss 4.25, valid 3.50 bits/token, 1,200 tokens/s"
