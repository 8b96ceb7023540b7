"""The devices of a command, the cores that this process may use, and whether the CPU computes in bfloat16."""

import os
from pathlib import Path

DEVICES = ("auto", "cpu", "gpu")
"""Legal values of ``--device``."""
CPUINFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
"""Flags of CPUs with instructions for bfloat16, as Linux names them: the first two of x86, the others of ARM."""


def device_name(word: str) -> str:
    """A value of ``--device``; ``cuda``, as PyTorch and CTranslate2 call it, is ``gpu``."""
    return "gpu" if word == "cuda" else word


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_bf16(cpuinfo: Path = CPUINFO) -> bool | None:
    """Whether this CPU has instructions for bfloat16, by its flags; None where the system does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return bool(BF16_FLAGS & set(flags.split()))
