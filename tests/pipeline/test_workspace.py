"""A directory of results: one job, one set of settings, whole files."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.pipeline.workspace import Workspace
from tests.refusals import refused
from tests.scripts.running import environment, wait_for


def enter(workspace: Workspace) -> None:
    with workspace.claimed():
        pass


def test_a_directory_or_settings_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    line = f"{below}: cannot be created: Not a directory"
    assert refused(enter, Workspace(below)) == line
    assert refused(Workspace(below).make, below / "stage", Path.touch) == line
    (tmp_path / ".lock").symlink_to(tmp_path / "absent")
    assert refused(enter, Workspace(tmp_path)).startswith(f"{tmp_path}: cannot be written: a link, through which")
    assert not (tmp_path / "absent").exists()
    with mock.patch("fairseq_plugins.files.to_disk", side_effect=OSError(errno.ENOSPC, "No space left")):
        line = refused(Workspace(tmp_path).remember, [("SIZE", 3)])
    assert line == f"{tmp_path}/settings: cannot be written: no space left"
    assert not (tmp_path / "settings").exists()


def test_a_second_job_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    with Workspace(tmp_path).claimed():
        line = f"{tmp_path}: in use by another job; wait for it, or use another directory"
        assert refused(enter, Workspace(tmp_path)) == line
        outlives = subprocess.Popen(["sleep", "60"], close_fds=False)  # a data loader may
    enter(Workspace(tmp_path))
    outlives.kill()
    outlives.wait()
    # An error of the job is not taken for a second job.
    with pytest.raises(BlockingIOError), Workspace(tmp_path).claimed():
        raise BlockingIOError


def test_a_child_that_outlives_a_killed_job_keeps_the_lock(tmp_path: Path) -> None:
    program = f"""
import sys
sys.orig_argv[1:] = ['-m', 'fairseq_plugins.tools.text']  # which needs no fairseq
WAIT = 'trap "" TERM; echo $$ >{tmp_path}/child.partial; mv {tmp_path}/child.partial {tmp_path}/child; read'
from pathlib import Path
from fairseq_plugins.tools.pipeline.commands import run
from fairseq_plugins.tools.pipeline.workspace import Workspace
with Workspace(Path({str(tmp_path)!r})).claimed():
    run("bash", "-c", WAIT)
"""
    with subprocess.Popen([sys.executable, "-c", program], env=environment(), stdin=subprocess.PIPE) as job:
        wait_for(tmp_path / "child", job)
        job.kill()
        job.wait()
        assert "in use by another job" in refused(enter, Workspace(tmp_path))
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while True:
        try:
            return enter(Workspace(tmp_path))
        except UserError:
            assert time.monotonic() < deadline, "the lock outlives all processes"
            time.sleep(0.01)


def test_settings_are_remembered_and_their_change_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    source = "d\x85e"  # which is no end of a line
    workspace.remember([("SIZE", 3), ("SOURCE", source)])
    assert (tmp_path / "settings").read_text() == f"SIZE=3\nSOURCE={source}\n"
    workspace.remember([("SIZE", "3"), ("SOURCE", source)])
    line = refused(workspace.remember, [("SIZE", 4), ("SOURCE", source), ("NEW", 1)])
    changed = "was made with other settings (SIZE=4; was SIZE=3; NEW=1); use another directory, or delete it"
    assert line == f"{tmp_path} {changed}"
    # A name may have several values.
    (tmp_path / "settings").unlink()
    workspace.remember([("train.de", "a"), ("train.en", "b"), ("train.de", "c")])
    assert (tmp_path / "settings").read_text() == "train.de=a\ntrain.en=b\ntrain.de=c\n"
    assert "(was train.de=c)" in refused(workspace.remember, [("train.de", "a"), ("train.en", "b")])


def test_a_stopped_stage_is_made_again_and_a_whole_one_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace, target = Workspace(tmp_path), tmp_path / "below" / "target"

    def stopped(partial: Path) -> None:
        partial.mkdir()
        (partial / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workspace.make(target, stopped)
    assert [path.name for path in target.parent.iterdir()] == ["target.partial"]
    workspace.make(target, lambda partial: (partial.mkdir(), (partial / "whole").touch()) and None)
    assert [path.name for path in target.parent.rglob("*")] == ["target", "whole"]
    workspace.make(target, stopped)
    assert capsys.readouterr().out == f"{target}: creating\n" * 2 + f"{target}: exists already, kept\n"
