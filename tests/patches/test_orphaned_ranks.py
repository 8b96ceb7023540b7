"""A rank ends with its torchrun, however early that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
LONGEST = 60.0
LAUNCHER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-m", "fairseq_plugins.cli", "hydra-train", "--help"]).wait()
"""


def ends(process: int) -> bool:
    """Whether a process that is no child of this one ends in time; it may stay a zombie where nobody waits for it."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_rank_that_still_imports_ends_with_torchrun(tmp_path: Path) -> None:
    """Else it would wait for the others for half an hour, and keep the directory of the run."""
    (tmp_path / "torch").mkdir()
    began = tmp_path / "began"
    (tmp_path / "torch" / "__init__.py").write_text(
        f"import os, time\nopen({str(began) + '.new'!r}, 'w').write(str(os.getpid()))\n"
        f"os.replace({str(began) + '.new'!r}, {str(began)!r})\ntime.sleep({2 * LONGEST})\n"
    )
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])
    environment = {**os.environ, "PYTHONPATH": path, "TORCHELASTIC_RUN_ID": "none"}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environment, cwd=tmp_path)
    try:
        until = time.monotonic() + LONGEST
        while not began.exists():
            assert launcher.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        launcher.kill()
        launcher.wait()
    assert ends(int(began.read_text()))
