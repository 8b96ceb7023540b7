"""The devices of this machine and the precisions that they support."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.errors import UserError
from fairseq_plugins.processor import core_count, has_bf16

PRECISIONS = ("fp32", "fp16", "bf16", "amp")
BF16_CAPABILITY = (8, 0)
"""Minimum CUDA compute capability for bfloat16 (Ampere)."""


@dataclass(frozen=True)
class Machine:
    """The devices for trainings: all GPUs, by their names, or the CPU with the cores that this process may use."""

    gpus: tuple[str, ...]
    has_bf16: bool
    """Whether the device supports bfloat16, a CPU in software if need be."""
    processor: str = "CPU"
    cores: int = 1
    fast_bf16: bool = False
    """Whether this is a CPU that is known to have instructions for bfloat16."""

    @property
    def on_cpu(self) -> bool:
        """Whether there is no GPU to train on."""
        return not self.gpus


def this_machine(*, cpu_wanted: bool = False) -> Machine:
    """Inspect the machine; ``cpu_wanted`` ignores its GPUs."""
    import torch

    count = 0 if cpu_wanted or not torch.cuda.is_available() else torch.cuda.device_count()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = next(iter(names), platform.processor() or "CPU")
    if not count:
        return Machine((), True, processor, core_count(), bool(has_bf16()))
    capabilities = [torch.cuda.get_device_capability(index) for index in range(count)]
    gpus = tuple(torch.cuda.get_device_name(index) for index in range(count))
    return Machine(gpus, min(capabilities) >= BF16_CAPABILITY, processor, core_count())


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them for another process."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    given = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return given.split(",")[:count]


class Precision(NamedTuple):
    """The precision of a training: its name, the configured one, and the overrides that switch it on."""

    name: str
    configured: str
    overrides: tuple[str, ...]


def choose_precision(wanted: str, config: Any, machine: Machine, before: str | None = None) -> Precision:
    """The precision to train in; arguments and errors as for :func:`chosen`, except fairseq's configuration."""
    common = config.common
    on = {
        "fp16": common.fp16 or common.memory_efficient_fp16,
        "bf16": common.bf16 or common.memory_efficient_bf16,
        "amp": common.amp,
    }
    configured = next((name for name in on if on[name]), "fp32")
    name = chosen(wanted, configured, machine, before)
    if name != configured:
        overrides = [f"common.{other}={str(name == other).lower()}" for other in on]
        overrides += ["common.memory_efficient_fp16=false", "common.memory_efficient_bf16=false"]
    else:
        # The flag --memory-efficient-fp16 implies --fp16; the YAML key does not.
        overrides = [] if name == "fp32" or common[name] else [f"common.{name}=true"]
    return Precision(name, configured, tuple(overrides))


def chosen(wanted: str, configured: str, machine: Machine, before: str | None = None) -> str:
    """The precision to train in, by name; a UserError if the machine does not support the one that is ``wanted``.

    ``auto`` is the configured one if the device supports it, else the nearest: fp16 for bf16 on an older GPU. On a CPU
    fp16 and amp become amp in bfloat16, if the CPU has instructions for bfloat16, else fp32. A training that continues
    on a CPU keeps the one of the two that it began in (``before``).
    """
    if wanted == "fp16" and machine.on_cpu:
        raise UserError("--precision fp16 needs a GPU; legal on a CPU: fp32, bf16, amp")
    if wanted == "bf16" and not machine.has_bf16:
        raise UserError(f"--precision bf16: {machine.gpus[0]} does not support bfloat16; use fp16")
    if wanted != "auto":
        return wanted
    if machine.on_cpu and configured in ("fp16", "amp"):
        return before if before in ("fp32", "amp") else "amp" if machine.fast_bf16 else "fp32"
    return "fp16" if configured == "bf16" and not machine.has_bf16 else configured
