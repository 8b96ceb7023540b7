"""A training ends with its own exit code while batches are still being read ahead."""

from __future__ import annotations

import subprocess
import sys

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


def ended(program: str) -> tuple[int, str, str]:
    words = [sys.executable, "-W", "ignore", "-c", program]
    found = subprocess.run(words, capture_output=True, text=True)
    return found.returncode, found.stdout, found.stderr


def test_a_process_that_reads_ahead_ends_as_if_it_did_not() -> None:
    """Without the patch the thread is inside torch's sort when Python stops it: exit code -6."""
    assert ended(READING.replace("SIZE", "1000")) == (0, "400000\n", "")


def test_a_thread_that_waits_for_room_ends_too() -> None:
    assert ended(READING.replace("SIZE", "1") + WAITING) == (0, "400000\nTrue False\n", "")
