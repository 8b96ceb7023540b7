"""Processes end with their training, and as it ended: ranks, loaders of batches, threads that read ahead."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fairseq import binarizer
from fairseq.data import dictionary

CHECKOUT = Path(__file__).resolve().parents[2]
LONGEST = 60.0
LAUNCHER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-m", "fairseq_plugins.cli", "hydra-train", "--help"]).wait()
"""
KILLED_EARLY = """
import multiprocessing, os, signal, time
import fairseq_plugins
from torch.utils.data._utils.worker import ManagerWatchdog

def work(training):
    while os.getppid() == training:
        time.sleep(0.01)
    print("lives" if ManagerWatchdog().is_alive() else "has ended", flush=True)

multiprocessing.get_context("fork").Process(target=work, args=(os.getpid(),)).start()
os.kill(os.getpid(), signal.SIGKILL)
"""
READING = """
import time
import torch
import fairseq_plugins
from fairseq_plugins.patches import batches_read_ahead
from fairseq.data.iterators import BufferedIterator

class Batches:
    def __len__(self):
        return 10**9

    def __iter__(self):
        while True:
            yield torch.rand(400_000).sort()

batches = BufferedIterator(SIZE, Batches())
print(next(batches).values.numel(), flush=True)
"""
WAITING = """
while not batches._queue.full():
    time.sleep(0.01)
time.sleep(0.5)  # until the next batch waits for room
began = time.monotonic()
batches_read_ahead.stop_reading()
print(time.monotonic() - began < batches_read_ahead.PATIENCE / 2, batches._consumer.is_alive())
"""
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")


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


@only_linux
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


@only_linux
def test_a_loader_that_starts_after_the_end_of_its_training_knows() -> None:
    """Otherwise it waits for batches to load for ever."""
    killed = subprocess.run([sys.executable, "-c", KILLED_EARLY], stdout=subprocess.PIPE, text=True, timeout=300)
    assert killed.stdout == "has ended\n"


@pytest.mark.parametrize(
    ("program", "printed"),
    [(READING.replace("SIZE", "1000"), ""), (READING.replace("SIZE", "1") + WAITING, "True False\n")],
    ids=["inside of torch", "waiting for room"],
)
def test_a_process_that_reads_ahead_ends_as_if_it_did_not(program: str, printed: str) -> None:
    """Without the patch the thread is inside torch's sort when Python stops it: exit code -6."""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"400000\n{printed}", "")


def test_workers_of_preprocess_leave_ctrl_c_to_their_parent() -> None:
    for module, handler in ((binarizer, signal.SIG_IGN), (dictionary, signal.SIG_IGN), (multiprocessing, None)):
        with module.Pool(processes=1) as pool:
            assert pool.apply(signal.getsignal, (signal.SIGINT,)) == (handler or signal.default_int_handler)
