"""What this process may use of the CPU, and what the CPU can compute."""

from __future__ import annotations

import os
from pathlib import Path

from fairseq_plugins.errors import UserError

CPUINFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
"""Flags of CPUs with instructions for bfloat16, as Linux names them: the first two of x86, the others of ARM."""


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads() -> None:
    """Check the variable that sets the number of torch's threads: a wrong one would be a line of each process.

    Raises:
        UserError: ``OMP_NUM_THREADS`` is set, but not to a number from 1 on, or to several with commas between them.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads and not all(number.strip().isdecimal() and int(number) > 0 for number in threads.split(",")):
        raise UserError(f"OMP_NUM_THREADS is '{threads}', not a whole number of at least 1; set another, or unset it")


def lists_bf16(cpuinfo: str) -> bool:
    """Whether the flags in the text of a ``/proc/cpuinfo`` name instructions for bfloat16."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith(("flags", "Features"))), "")
    return bool(BF16_FLAGS & set(flags.split()))


def has_bf16(cpuinfo: Path = CPUINFO) -> bool | None:
    """Whether this CPU has instructions for bfloat16; None where the system does not tell."""
    try:
        return lists_bf16(cpuinfo.read_text(encoding="utf-8"))
    except OSError:
        return None
