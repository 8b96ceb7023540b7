"""The machines that the tests can be run as on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = ("tests",)
NUMBERS = tuple(
    f"tests/{name}"
    for name in (
        "checkpoints contract core equivalence language_model methods observe recorded search speech_to_text training "
        "translator"
    ).split()
)
"""The parts that compute: their numbers depend on the order in which a processor adds."""


@dataclass(frozen=True)
class Machine:
    """A way to run the tests.

    Args:
        says: what it is, in a few words.
        environment: variables beside those that are set anyway.
        tests: files and directories.
        random_order: whether a seed draws the order of the tests.
        kernels: torch's name for the kernels that the variables select; empty if they select none.
    """

    says: str
    environment: Mapping[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = EVERYTHING
    random_order: bool = False
    kernels: str = ""


def _instructions(says: str, kernels: str, onednn: str, mkl: str) -> Machine:
    # Torch's own kernels, oneDNN's and MKL's heed a limit each; the matrix products are MKL's.
    limits = {"ATEN_CPU_CAPABILITY": kernels.lower(), "ONEDNN_MAX_CPU_ISA": onednn, "MKL_CBWR": mkl}
    return Machine(says, limits, NUMBERS, kernels=kernels)


MACHINES = {
    "sse": _instructions("no vector instructions newer than SSE4.1", "DEFAULT", "SSE41", "COMPATIBLE"),
    "avx2": _instructions("AVX2", "AVX2", "AVX2", "AVX2"),
    "avx512": _instructions("AVX-512 without its extensions for bfloat16", "AVX512", "AVX512_CORE", "AVX512"),
    "threads": Machine("two threads", {"TEST_THREADS": "2"}),
    "order": Machine("random order", random_order=True),
    "first": Machine("as always"),
    "second": Machine("as always, again"),
    "third": Machine("as always, once more"),
}
