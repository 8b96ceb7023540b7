"""Commands of a pipeline: run, failed or interrupted."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_plugins.tools.pipeline.commands import run
from tests.scripts.running import ROOT, environment, wait_for


def test_settings_reach_the_command_and_a_failure_ends_us_with_its_code(tmp_path: Path) -> None:
    run("bash", "-c", f"echo $GREETING >{tmp_path}/out", environment={"GREETING": "hello"})
    assert (tmp_path / "out").read_text() == "hello\n"
    for command, code in (("exit 3", 3), ("kill -KILL $$", 128 + signal.SIGKILL)):
        with pytest.raises(SystemExit) as caught:
            run("bash", "-c", command)
        assert caught.value.code == code


JOB = """
import sys
sys.orig_argv[1:] = ['-m', 'fairseq_plugins.tools.text']  # which needs no fairseq
from fairseq_plugins.process import exit_code
from fairseq_plugins.tools.pipeline.commands import interruptible, run
def job():
    with interruptible():
        run(*sys.argv[1:])
sys.exit(exit_code(job))
"""


def interrupted(place: Path, end: Callable[[subprocess.Popen[str]], None], *command: object) -> None:
    """A job of ours runs ``command``, which writes ``begun``, is ended by ``end``, and says once how to continue."""
    with subprocess.Popen(
        [sys.executable, "-c", JOB, *map(str, command)],
        env=environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        wait_for(place / "begun", job)
        end(job)
        assert job.stderr.read() == "\ninterrupted; the same command continues where this one stopped\n"
        assert job.wait() == 130


def test_whoever_ends_us_ends_the_command(tmp_path: Path) -> None:
    wait = f"echo $$ >{tmp_path}/child; mv {tmp_path}/child {tmp_path}/begun; read"
    interrupted(tmp_path, subprocess.Popen.terminate, "bash", "-c", wait)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "begun").read_text()), 0)


def test_ctrl_c_at_a_terminal_is_one_line_whatever_commands_it_reaches(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(f"source {ROOT}/scripts/lib.sh; touch {tmp_path}/begun; read\n")
    inner = (sys.executable, "-c", JOB, "bash", script)
    interrupted(tmp_path, lambda job: os.killpg(job.pid, signal.SIGINT), *inner)
