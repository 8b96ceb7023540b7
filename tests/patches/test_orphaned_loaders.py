"""A process that loads batches ends with its training, however early that is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.skipif(sys.platform != "linux", reason="on Windows torch holds a handle of the parent")
def test_a_worker_that_starts_after_the_end_of_its_training_knows() -> None:
    """Otherwise it waits for batches to load for ever."""
    killed = subprocess.run([sys.executable, "-c", KILLED_EARLY], stdout=subprocess.PIPE, text=True, timeout=300)
    assert killed.stdout == "has ended\n"
