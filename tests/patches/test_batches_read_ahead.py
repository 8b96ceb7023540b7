"""A training ends with its own exit code while batches are still being read ahead."""

from __future__ import annotations

import subprocess
import sys

READING = """
import torch
import fairseq_plugins
from fairseq.data.iterators import BufferedIterator

class Batches:
    def __len__(self):
        return 10**9

    def __iter__(self):
        while True:
            yield torch.rand(400_000).sort()

print(next(BufferedIterator({size}, Batches())).values.numel(), flush=True)
"""


def ended(size: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READING.format(size=size)], capture_output=True, text=True
    )


def test_a_process_that_reads_ahead_ends_as_if_it_did_not() -> None:
    """Without the patch the thread is inside torch's sort when Python stops it: exit code -6."""
    found = ended(1000)
    assert (found.returncode, found.stdout, found.stderr) == (0, "400000\n", "")


def test_a_thread_that_waits_for_room_ends_too() -> None:
    found = ended(1)
    assert (found.returncode, found.stdout, found.stderr) == (0, "400000\n", "")
