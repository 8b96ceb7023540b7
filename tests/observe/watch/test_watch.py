"""Watching trainings: made logs whose every number is known."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.cli.main import COMMANDS, main
from fairseq_plugins.observe.watch import command
from fairseq_plugins.observe.watch.logs import find_logs, names
from fairseq_plugins.observe.watch.spikes import spikes
from fairseq_plugins.observe.watch.summary import figure
from fairseq_plugins.pipeline.fairseq_log import LogReader, TrainingLog, read_log
from fairseq_plugins.pipeline.progress import Screen
from fairseq_plugins.pipeline.verdicts import judge
from tests.pipeline.making import write_run

PREFIX = "2026-01-02 03:04:05 | INFO |"
DONE = f"{PREFIX} fairseq_cli.train | done training in 4.0 seconds\n"
COLLAPSE = "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.\n"


def trained(updates: int, nll: float, gnorm: float = 1.0, **more: object) -> str:
    values = {"nll_loss": nll, "loss": 9, "num_updates": updates, "gnorm": gnorm, "lr": 0.001, "wps": 500, **more}
    return f"{PREFIX} train_inner | {json.dumps({key: str(value) for key, value in values.items()})}\n"


def validated(updates: int, nll: float, **more: object) -> str:
    values = {"valid_nll_loss": nll, "valid_num_updates": updates, **more}
    return f"{PREFIX} valid | {json.dumps({key: str(value) for key, value in values.items()})}\n"


def write_log(directory: Path, *lines: str) -> Path:
    directory.mkdir(parents=True)
    (directory / "train.log").write_text("".join(lines))
    return directory


def watch(*arguments: object) -> int:
    return main(["watch", *map(str, arguments)])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pictures, which take a second."""
    monkeypatch.setattr(command.plots, "available", lambda: False)


# --- the log --------------------------------------------------------------------------------------------------------

LINES = st.one_of(
    st.builds(trained, st.integers(1, 30), st.floats(0, 20), st.floats(0, 9), loss_scale=st.sampled_from([1, 128])),
    st.builds(validated, st.integers(1, 30), st.floats(0, 20), valid_bleu=st.floats(0, 99)),
    st.sampled_from(
        [DONE, COLLAPSE, "gradient overflow detected\n", "ä ü\n", trained(7, 3.0)[:60], "{'max_update': 9}\n"]
    ),
)


@given(st.lists(LINES, max_size=12), st.lists(st.integers(0, 2000), max_size=8))
def test_read_in_chunks_as_read_whole(tmp_path_factory, lines, cuts):
    whole = "".join(lines).encode()
    path = tmp_path_factory.mktemp("log") / "train.log"
    path.write_bytes(b"")
    reader = LogReader(path)
    for end in [*sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]:
        path.write_bytes(whole[:end])
        reader.poll()
    assert reader.log == read_log(path)


def test_every_series_of_a_log(tmp_path):
    path = (
        write_log(
            tmp_path / "run",
            "x | {'optimization': {'max_update': 500}}\n",
            trained(100, 8.0, 2.5, loss_scale=128),
            f"{PREFIX} fairseq.trainer | NOTE: gradient overflow detected, x\n",
            trained(200, 7.0, 1.5, loss_scale=64),
            validated(200, 7.25, valid_bleu=12.5),
            DONE,
        )
        / "train.log"
    )
    log = read_log(path)
    assert (log.train_loss, log.valid_loss) == ({100: 8.0, 200: 7.0}, {200: 7.25})
    assert (log.gradient_norm, log.loss_scale) == ({100: 2.5, 200: 1.5}, {100: 128.0, 200: 64.0})
    assert (log.learning_rate, log.valid_bleu) == ({100: 0.001, 200: 0.001}, {200: 12.5})
    assert (log.max_update, log.overflows, log.done, log.not_finite) == (500, 1, True, False)


def test_a_record_behind_half_a_line_is_read(tmp_path):
    torn = trained(200, 5.0)[:70]
    log = read_log(write_log(tmp_path / "run", trained(100, 8.0), torn + trained(200, 7.0)) / "train.log")
    assert log.train_loss == {100: 8.0, 200: 7.0}


def test_a_resumed_training_counts_its_latest_records(tmp_path):
    log = read_log(write_log(tmp_path / "a", trained(100, 8.0, 3.0), DONE, trained(100, 7.5, 2.0)) / "train.log")
    assert (log.train_loss, log.gradient_norm, log.done) == ({100: 7.5}, {100: 2.0}, False)


def test_a_log_that_begins_anew_is_read_anew(tmp_path):
    path = write_log(tmp_path / "run", trained(100, 8.0), trained(200, 7.0)) / "train.log"
    reader = LogReader(path)
    assert reader.poll().updates == 200
    path.write_text(trained(50, 9.0))
    assert reader.poll().train_loss == {50: 9.0}


def test_a_log_as_hydra_writes_it():
    log = TrainingLog()
    log.take('[2026-01-02 03:04:05,678][valid][INFO] - {"valid_nll_loss": "4.5", "valid_num_updates": "30"}')
    assert log.valid_loss == {30: 4.5}


def test_a_collapsed_loss_scale_is_a_divergence_with_its_name():
    log = TrainingLog()
    log.take(COLLAPSE)
    assert (judge(log, 8.0).outcome, judge(log, 8.0).reason) == ("diverged", "minimum loss scale reached")


# --- spikes ---------------------------------------------------------------------------------------------------------


def test_spikes_by_hand():
    # Mean 3 and deviation 2 over any even number of ones and fives: the limit is 3 + 6 * 2 = 15.
    base = {place: 1.0 + 4 * (place % 2) for place in range(20)}
    assert spikes({**base, 20: 15.0}) == []
    assert spikes({**base, 20: 15.01}) == [20]
    assert spikes({**base, 20: 9.5}, deviations=3) == [20]
    assert spikes({**base, 20: math.inf, 21: 15.01, 22: math.nan}) == [20, 21, 22]
    assert spikes({0: 1.0, 1: 100.0}) == []  # nothing to compare with


def test_a_lasting_rise_is_found_once():
    assert spikes({place: 1.0 if place < 30 else 9.0 for place in range(60)}) == [30]


@given(st.lists(st.integers(0, 10**6), max_size=80), st.sampled_from([0.25, 2.0, 1024.0]))
def test_spikes_do_not_depend_on_the_unit(values, factor):
    plain = {place: float(value) for place, value in enumerate(values)}
    assert spikes(plain, 12, 2.0) == spikes({place: value * factor for place, value in plain.items()}, 12, 2.0)


# --- paths and names ------------------------------------------------------------------------------------------------


def test_logs_are_found_once_and_named_by_their_runs(tmp_path):
    for place in ("admin/seed 1", "admin/seed 2", "b2t/seed 1"):
        write_log(tmp_path / place)
    (tmp_path / "other.log").write_text("")
    logs = find_logs([tmp_path, tmp_path / "b2t" / "seed 1" / "train.log", tmp_path / "other.log"])
    assert names(logs) == ["admin/seed 1", "admin/seed 2", "b2t/seed 1", "other.log"]
    assert names(logs[:2]) == ["seed 1", "seed 2"]
    assert names(logs[:1]) == ["seed 1"]


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One run of each fate; 3 bits of entropy, so that 2.84 is learned and 2.86 is not."""
    (tmp_path / "data" / "text").mkdir(parents=True)
    (tmp_path / "data" / "text" / "train.en").write_text("a b c d e f g\n")
    for name, loss, finished in (("good", 2.84, None), ("stuck", 2.86, None), ("running", 2.5, {})):
        write_run(tmp_path / "runs" / name, data=tmp_path / "data", valid={100: 2.9, 200: loss}, finished=finished)
    gradients = [trained(place, 5.0, 1.0 + place % 2) for place in range(1, 21)]
    write_log(tmp_path / "runs" / "burst", *gradients, trained(21, 5.0, 99.0), COLLAPSE)
    return tmp_path / "runs"


def test_table_numbers_and_verdicts(runs, tmp_path, capsys, quick):
    assert watch(runs, "--output", tmp_path / "out put") == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed[2:6]] == [
        ["burst", "diverged"],
        ["good", "ok"],
        ["running", "not"],
        ["stuck", "failed"],
    ]
    assert "BLEU" not in printed[0]
    assert "loss scale" not in printed[0]
    assert "burst: minimum loss scale reached" in printed
    found = {run["name"]: run for run in json.loads((tmp_path / "out put/watch.json").read_text())["runs"]}
    assert found["burst"]["spikes"] == {"window": 50, "deviations": 6.0, "updates": [21]}
    assert found["good"]["series"]["valid_loss"] == {"updates": [100, 200], "values": [2.9, 2.84]}
    assert {name: run["verdict"] for name, run in found.items()} == {
        "burst": "diverged",
        "good": "ok",
        "running": "not finished",
        "stuck": "failed to train",
    }
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out put/watch.csv").read_text())))
    assert {"run": "stuck", "series": "valid_loss", "updates": "200", "value": "2.86"} in rows


def test_the_picture_has_a_panel_for_what_is_there(tmp_path, capsys):
    log = write_log(tmp_path / "run", trained(100, 8.0), trained(200, math.nan), validated(200, 7.5))
    shown = figure(command.Session(command.read([str(log)]), Screen()).look())
    assert [panel.title for panel in shown.panels] == ["train loss", "valid loss", "gradient norm", "learning rate"]
    assert [list(line.points) for line in shown.panels[0].lines] == [[(100.0, 8.0)]]
    assert watch(log, "--output", tmp_path / "out") == 0
    assert (tmp_path / "out/watch.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "out/watch.pdf").read_bytes()[:4] == b"%PDF"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["trian.log"], "trian.log: no such file or directory (did you mean 'train.log'?)"),
        (["train.log", "--folow"], "unknown option '--folow' (did you mean '--follow'?); legal: --help, "),
        (["train.log", "--every", "0"], "--every must be a number above 0, not 0"),
        (["train.log", "--draw-every", "nan"], "--draw-every must be a number above 0, not nan"),
        (["train.log", "--spike-window", "1"], "--spike-window must be at least 2, not 1"),
        (["empty"], "empty: no train.log or hydra_train.log in it or below it"),
        (["text.log"], "text.log: no JSON record in it; train with --log-format json --log-file FILE"),
        (["simple.log"], "simple.log: no JSON record in it; train with --log-format json --log-file FILE"),
        (["notes"], "notes: not a log of fairseq; --log-format json --log-file FILE"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("train.log").write_text(trained(1, 2.0))
    Path("text.log").write_text(f"{PREFIX} valid | epoch 001 | valid on 'valid' subset | loss 3.97 | num_updates 40\n")
    Path("simple.log").write_text(f"{PREFIX} train_inner | epoch 001:     10 / 40 loss=9.5, ppl=8\n")
    Path("notes").write_text("Buy milk.\n")
    assert watch(*arguments) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: {complaint}")
    assert errors.count("\n") == 1
    assert not Path("watch").exists()


def test_a_log_without_a_record_yet_is_waited_for(tmp_path, capsys, quick):
    log = write_log(tmp_path / "run", f"{PREFIX} fairseq_cli.train | starting\n")
    assert watch(log, "--output", tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["run", "not", "finished", "0"]


def test_a_file_of_log_file_is_read_although_it_says_of_no_line_what_it_is(tmp_path, capsys, quick):
    """Records with nothing before them, the epoch's own among them, and every one once more an epoch."""
    epoch = json.dumps({"epoch": 1, "train_loss": "9", "train_nll_loss": "8.9", "train_num_updates": "30"}) + "\n"
    recorder = json.dumps({"update": 30, "applied": True, "loss": 8.0, "branch_rms_most": ["encoder", 1.0]}) + "\n"
    lines = [trained(10, 8.5), trained(20, 8.0), recorder, epoch, validated(20, 7.5), validated(20, 7.5), DONE]
    bare = "".join(line.rpartition(" | ")[2] for line in lines)
    log = tmp_path / "mine.log"
    log.write_text("{'_name': None, 'common': {'_name': None}, 'optimization': {'max_update': 20}}\n")
    assert watch(log, "--output", tmp_path / "out") == 0
    assert "not finished" in capsys.readouterr().out
    log.write_text(log.read_text() + bare)
    read = read_log(log)
    assert (read.train_loss, read.valid_loss, read.done) == ({10: 8.5, 20: 8.0}, {20: 7.5}, True)
    assert read == read_log(write_log(tmp_path / "tagged", log.read_text().splitlines(True)[0], *lines) / "train.log")
    assert watch(log, "--output", tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["mine.log", "unknown"]


def test_following_piped_says_what_moved_and_what_ended(tmp_path, capsys, quick, monkeypatch):
    first, second = write_log(tmp_path / "a", trained(100, 8.0)), write_log(tmp_path / "b", trained(100, 8.5), DONE)
    steps = iter(["", trained(200, 7.0), validated(200, 6.5) + DONE])

    def sleep(seconds: float) -> None:
        assert seconds == 3.0
        with open(first / "train.log", "a") as log:
            log.write(next(steps))

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert watch(first, second, "--follow", "--every", 3, "--output", tmp_path / "out") == 0
    rest = "gradient norm 1.000, learning rate 1.00e-03"
    assert capsys.readouterr().out.splitlines()[:6] == [
        f"a: 100 updates, train loss 8.000, {rest}",
        f"b: 100 updates, train loss 8.500, {rest}",
        "b: ended after 100 updates: unknown (never validated)",
        f"a: 200 updates, train loss 7.000, {rest}",
        f"a: 200 updates, train loss 7.000, valid loss 6.500, {rest}",
        "a: ended after 200 updates: unknown "
        "(valid loss 6.50 bits; the token frequencies of the training text are unknown)",
    ]
    assert not next(steps, "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_redrawn_in_place():
    terminal = Terminal()
    screen = Screen(terminal)
    screen.show(["one", "two"])
    screen.say("ended")
    screen.show(["x" * 200])
    erase = "\x1b[2A\x1b[J"
    width = len(terminal.getvalue().splitlines()[-1]) - len(erase)
    assert terminal.getvalue() == f"one\ntwo\n{erase}ended\none\ntwo\n{erase}{'x' * width}\n"
    assert width < 200


def test_more_lines_than_the_terminal_has_are_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "6")
    terminal = Terminal()
    Screen(terminal).show([str(place) for place in range(10)])
    assert terminal.getvalue().splitlines() == ["0", "1", "2", "3", "... 6 more lines"]


def test_interrupted_on_a_terminal_it_leaves_with_130_and_no_fairseq_is_imported(tmp_path):
    log = write_log(tmp_path / "run", trained(100, 8.0))
    program = (
        "import sys; sys.orig_argv[1:] = ['fairseq-deep']\n"
        "from fairseq_plugins.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "sys.exit(code + 1 if {'fairseq', 'torch'} & set(sys.modules) else code)\n"
    )
    ours, theirs = pty.openpty()
    arguments = ["watch", str(log), "--follow", "--every", "0.1", "--output", str(tmp_path / "out")]
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while seen.count(b"\x1b[J") < 2:  # drawn, and redrawn
        seen += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    assert process.wait(300) == 130
    os.close(ours)
    assert b"8.000" in seen
    assert b"Traceback" not in seen


def test_watch_needs_no_fairseq():
    assert not COMMANDS["watch"].needs_fairseq
