"""Processes end with their training, and as it ended: ranks, loaders of batches, threads that read ahead."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fairseq import binarizer
from fairseq.data import dictionary
from fairseq.data.iterators import BufferedIterator

from tests import processes

CHECKOUT = Path(__file__).resolve().parents[2]
LAUNCHER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-u", "-m", "fairseq_plugins.tools.cli", "hydra-train", "--help"]).wait()
"""
READING = """
import time
from collections.abc import Iterator
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


@only_linux
def test_a_rank_that_still_imports_ends_with_torchrun(tmp_path: Path) -> None:
    """Else it would wait for the others for half an hour, and keep the directory of the run."""
    (tmp_path / "torch").mkdir()
    began = tmp_path / "began"
    (tmp_path / "torch" / "__init__.py").write_text(
        f"import os, time\nopen({str(began) + '.new'!r}, 'w').write(str(os.getpid()))\n"
        f"os.replace({str(began) + '.new'!r}, {str(began)!r})\ntime.sleep({2 * processes.LONGEST})\n"
    )
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])
    environment = {**os.environ, "PYTHONPATH": path, "TORCHELASTIC_RUN_ID": "none"}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environment, cwd=tmp_path)
    try:
        until = time.monotonic() + processes.LONGEST
        while not began.exists():
            assert launcher.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        launcher.kill()
        launcher.wait()
    assert processes.ends(int(began.read_text()))


@pytest.mark.parametrize(
    ("program", "printed"),
    [(READING.replace("SIZE", "1000"), ""), (READING.replace("SIZE", "1") + WAITING, "True False\n")],
    ids=["inside of torch", "waiting for room"],
)
def test_a_process_that_reads_ahead_ends_as_if_it_did_not(program: str, printed: str) -> None:
    """Without the patch the thread is inside torch's sort when Python stops it: exit code -6."""
    assert processes.python("-W", "ignore", "-c", program) == (0, "", f"400000\n{printed}")


def test_workers_of_preprocess_leave_ctrl_c_to_their_parent() -> None:
    for module, handler in ((binarizer, signal.SIG_IGN), (dictionary, signal.SIG_IGN), (multiprocessing, None)):
        with module.Pool(processes=1) as pool:
            assert pool.apply(signal.getsignal, (signal.SIGINT,)) == (handler or signal.default_int_handler)


class Unreadable:
    """Batches that cannot even be begun, as where a loader cannot start its workers."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[int]:
        raise OSError(errno.ENOMEM, "no memory for a worker")


def test_what_reads_ahead_hands_on_the_error_of_a_loader_that_cannot_start() -> None:
    """Else the training waits for ever."""
    with pytest.raises(OSError, match="no memory for a worker"):
        next(BufferedIterator(2, Unreadable()))
