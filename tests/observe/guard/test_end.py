"""How a training that the guard ends looks from outside: to a shell and to scripts."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
from hydra.core.utils import JobReturn

from fairseq_plugins.cli import main as cli
from fairseq_plugins.errors import DIVERGED_EXIT_CODE, Diverged, raised_in_worker
from fairseq_plugins.observe.guard.report import record as guard_record
from fairseq_plugins.pipeline import ending
from fairseq_plugins.pipeline.fairseq_log import read_log
from fairseq_plugins.pipeline.verdicts import judge
from tests import processes, toy
from tests.observe.guard.common import place_in, reports
from tests.observe.guard.conftest import ON

TOO_HIGH = ("--lr", "50", "--lr-scheduler", "fixed", "--clip-norm", "0", "--max-update", "20")


def error_line(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


@pytest.fixture(scope="module", params=["forked", pytest.param("spawned", marks=pytest.mark.slow)])
def ended(
    request: pytest.FixtureRequest, toy_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, int, str]:
    """A training in two processes whose learning rate is too high: its directory, exit code and standard error."""
    run = tmp_path_factory.mktemp("guard") / "a run"
    flags = [*toy.TINY_MODEL, *toy.RECIPE, "--disable-validation", *ON, *TOO_HIGH, "--divergence-action", "stop"]
    flags += ["--save-dir", str(run), "--distributed-world-size", "2", "--log-format", "json", "--log-interval", "1"]
    flags += ["--log-file", str(run / "train.log")]
    errors = io.StringIO()
    run.mkdir()
    with contextlib.redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
        if request.param == "forked":
            processes.fork_ranks(patch)
        code = cli.main(["train", str(toy_data), "--arch", "post_ln_transformer", *flags])
    return run, code, errors.getvalue()


def test_one_line_one_code_and_one_report(ended: tuple[Path, int, str]) -> None:
    run, code, said = ended
    assert code == DIVERGED_EXIT_CODE == 3
    assert error_line(said).startswith("error: diverged at update ")
    assert "Traceback" not in said
    (report,) = reports(run)
    assert re.search(
        rf"; first in {re.escape(place_in(report))} \(.+\); report: {re.escape(str(run))}", error_line(said)
    )


def test_scripts_and_report_call_it_diverged(ended: tuple[Path, int, str], tmp_path: Path) -> None:
    run, code, said = ended
    reason = error_line(said).split("diverged at update ")[1].split(": ", 1)[1].split("; report")[0]
    assert "; first in " in reason
    log = run / "train.log"
    assert (judge(read_log(log), 3.0).outcome, judge(read_log(log), 3.0).reason) == ("diverged", reason)
    finished = tmp_path / "run" / "finished"
    finished.parent.mkdir()
    assert ending.say_how_it_ended(finished.parent, code, log, since=0).exit_code == 1
    written = json.loads(finished.read_text())
    assert (written["outcome"], written["reason"]) == ("diverged", reason)


def test_a_run_that_failed_to_train_is_called_that(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    text = "failed to train: training loss 9.01 bits a token after 4400 updates, the frequencies alone give 9.1"
    prefix = "2026-01-01 00:00:00 | INFO | fairseq_cli.train.guard | "
    log.write_text(f"{prefix}{guard_record(4400, f'{text}; stop', ends=text)}\nerror: {text}\n")
    assert ending.say_how_it_ended(tmp_path, 3, log, since=0).exit_code == 1
    assert json.loads((tmp_path / "finished").read_text())["outcome"] == "failed to train"
    assert judge(read_log(log), None).outcome == "failed to train"


def test_hydra_ends_with_the_same_code() -> None:
    job = JobReturn()
    job.return_value = Diverged("diverged at update 3: the loss is not a number")
    with pytest.raises(SystemExit) as caught:
        _ = job.return_value
    assert caught.value.code == DIVERGED_EXIT_CODE


def test_the_trace_of_a_process_is_told_apart() -> None:
    for kind in ("Diverged", "UserError"):
        found = raised_in_worker(f"-- Process 1 --\n  File x\nfairseq_plugins.errors.{kind}: what it says")
        assert (type(found).__name__, str(found)) == (kind, "what it says")
    assert raised_in_worker("fairseq_plugins.errors.UserError: handled\n\nValueError: but this was not") is None
