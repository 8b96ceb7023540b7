"""Checks of processor, memory, disk, GPUs and environment variables that silently change a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.doctor.finding import UPSTREAM, Finding, Level
from fairseq_plugins.processor import core_count

GIB = 1 << 30
SHARED_MEMORY = Path("/dev/shm")
BF16, TENSOR_CORES, FP16 = (8, 0), (7, 0), (5, 3)
"""Minimum compute capabilities of these formats."""


def processor() -> Iterator[Finding]:
    """Report cores and memory that this process may use."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _container_limit(Path("/sys/fs/cgroup/memory.max"))
    usable = min(total, limit) if limit else total
    says = f"{core_count()} cores, {usable / GIB:.0f} GiB of memory"
    yield Finding(Level.OK, "processor", says + (" (limited by the container)" if usable < total else ""))


def _container_limit(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or the word max
        return None


def disk() -> Iterator[Finding]:
    """Report free space for checkpoints in the working directory, and for batches between processes."""
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    says = f"{free / GIB:.1f} GiB free in {here}"
    room = "a checkpoint of a Transformer-big takes 2.5 GB: 12 bytes a parameter"
    if free < GIB / 10:
        yield Finding(Level.ERROR, "disk", f"{says}: no checkpoint can be written", "free some space")
    elif free < 10 * GIB:
        yield Finding(Level.WARNING, "disk", f"{says}; {room}", "--keep-last-epochs, or another --save-dir")
    else:
        yield Finding(Level.OK, "disk", says)
    if not os.access(here, os.W_OK):
        yield Finding(Level.WARNING, "disk", f"{here} cannot be written", "give a --save-dir elsewhere")


def shared_memory() -> Iterator[Finding]:
    """Report shared memory, through which workers of a DataLoader pass batches; containers have 64 MiB."""
    if not SHARED_MEMORY.is_dir():
        yield Finding(Level.NOTE, str(SHARED_MEMORY), "there is none on this system")
        return
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free >= GIB:
        yield Finding(Level.OK, str(SHARED_MEMORY), f"{free / GIB:.1f} GiB free")
        return
    says = f"{free / (1 << 20):.0f} MiB free: a worker that loads batches may die of a bus error"
    cure = "docker run --ipc=host, or --num-workers 0"
    yield Finding(Level.WARNING, str(SHARED_MEMORY), says, cure, "https://github.com/pytorch/pytorch/issues/5040")


def load_torch() -> Any:
    """Import torch, which takes a second and may fail."""
    import torch

    return torch


def numpy_bridge() -> Iterator[Finding]:
    """Check that torch and numpy, each fine alone, work together."""
    try:
        torch = load_torch()
    except Exception as error:  # a missing library of CUDA is an OSError
        yield Finding(Level.ERROR, "torch", f"cannot be imported: {error}", "pip install --force-reinstall torch")
        return
    try:
        torch.zeros(1).numpy()
    except RuntimeError as error:
        says = f"torch {torch.__version__} cannot use the installed numpy ({str(error).splitlines()[0]})"
        yield Finding(Level.ERROR, "numpy", says, "pip install --upgrade torch, or 'numpy<2'")


def gpus() -> Iterator[Finding]:
    """Report every GPU, or why torch sees none although there could be one."""
    try:
        torch = load_torch()
    except Exception:  # reported by the previous check
        return
    yield from findings_of_gpus(torch, os.environ, _driver_lists_gpus())


def _driver_lists_gpus() -> bool:
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout


def findings_of_gpus(torch: Any, environment: Mapping[str, str], driver_lists_gpus: bool) -> Iterator[Finding]:
    """Yield the findings of :func:`gpus` for a given torch and environment."""
    if not torch.cuda.is_available():
        yield _no_gpu(torch, environment, driver_lists_gpus)
        return
    kernels = torch.cuda.get_arch_list()
    for number in range(torch.cuda.device_count()):
        yield _gpu(number, torch.cuda.get_device_properties(number), kernels)
    if torch.cuda.device_count() > 1 and not torch.distributed.is_nccl_available():
        yield Finding(Level.WARNING, "NCCL", "this torch has none: several GPUs cannot train together")


def _no_gpu(torch: Any, environment: Mapping[str, str], driver_lists_gpus: bool) -> Finding:
    hidden = environment.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1"):
        return Finding(
            Level.NOTE, "GPU", f"hidden by CUDA_VISIBLE_DEVICES='{hidden}'; training needs --cpu and is slow"
        )
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        if driver_lists_gpus:
            cure = "install torch from https://download.pytorch.org/whl/, and fairseq-fixed again"
            return Finding(
                Level.WARNING, "GPU", f"there is one, but torch {torch.__version__} is built without CUDA", cure
            )
        return Finding(Level.NOTE, "GPU", f"none (torch {torch.__version__} is built without CUDA): slow, use --cpu")
    if driver_lists_gpus:
        says = f"torch {torch.__version__} (CUDA {torch.version.cuda}) cannot use the GPU of this machine"
        cure = "update the driver, or install a torch for an older CUDA; python -c 'import torch; torch.cuda.init()'"
        return Finding(Level.WARNING, "GPU", says, cure)
    return Finding(Level.NOTE, "GPU", "none: training needs --cpu and is slow")


def _gpu(number: int, properties: Any, kernels: Sequence[str]) -> Finding:
    capability = (properties.major, properties.minor)
    version = f"{properties.major}.{properties.minor}"
    says = f"{properties.name}, {properties.total_memory / GIB:.0f} GiB, compute capability {version}"
    about = f"GPU {number}"
    if not has_kernels(capability, kernels):
        cure = "install a torch that was built for it"
        return Finding(Level.ERROR, about, f"{says}: this torch has no kernels for it ({' '.join(kernels)})", cure)
    if capability >= BF16:
        return Finding(Level.OK, about, f"{says}: --bf16 and --fp16")
    if capability >= TENSOR_CORES:
        return Finding(Level.OK, about, f"{says}: --fp16 or --amp; --bf16 is only emulated", thread=f"{UPSTREAM}4696")
    half = "no gain from --fp16" if capability >= FP16 else "no --fp16"
    return Finding(Level.NOTE, about, f"{says}: {half}, no --bf16")


def has_kernels(capability: tuple[int, int], kernels: Sequence[str]) -> bool:
    """Return whether there is code for a GPU of this generation, compiled or in a form that can be compiled for it."""
    if not kernels:
        return True
    for kernel in kernels:
        kind, _, digits = kernel.partition("_")
        digits = "".join(character for character in digits if character.isdigit())
        if not digits:
            continue
        version = (int(digits[:-1]), int(digits[-1]))
        if version <= capability and (kind == "compute" or version[0] == capability[0]):
            return True
    return False


def variables() -> Iterator[Finding]:
    """Report environment variables that change a run."""
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "") not in ("", "0"):
        says = "set: loading a checkpoint runs whatever code is in it; this package does not need that"
        yield Finding(Level.WARNING, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", says, "unset it", f"{UPSTREAM}5610")
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        says = f"the terminal's encoding is {sys.stdout.encoding}: printing a translation may fail"
        yield Finding(Level.WARNING, "encoding", says, "export PYTHONUTF8=1", f"{UPSTREAM}718")


def moses() -> Iterator[Finding]:
    """Report Moses' own tools, which reproduce the published text exactly."""
    checkout, perl = os.environ.get("MOSES", ""), shutil.which("perl")
    if not checkout:
        yield Finding(
            Level.NOTE,
            "Moses",
            "text is prepared with sacremoses, which is Moses in Python",
            "MOSES=DIR, a checkout of Moses, uses its own Perl programs",
        )
    elif perl is None:
        yield Finding(Level.WARNING, "Moses", "MOSES is set, and there is no Perl to run it", "install perl")
    elif not (Path(checkout) / "scripts" / "tokenizer" / "tokenizer.perl").is_file():
        yield Finding(Level.WARNING, "Moses", f"no scripts/tokenizer/tokenizer.perl in MOSES={checkout}")
    else:
        yield Finding(Level.OK, "Moses", f"{checkout}, run by {perl}")
