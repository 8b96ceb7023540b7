"""``fairseq-deep doctor``: can a training start in this environment?

Most of that is known to others, who are asked: the metadata of the installed packages, and ``pip check``. Three
questions are left: Is fairseq compiled? Can our methods be registered with it? In which precisions can each GPU train?
"""

from __future__ import annotations

import contextlib
import io
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, metadata
from pathlib import Path
from typing import NamedTuple

import fairseq_plugins
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.tools.pipeline.checkout import commit
from fairseq_plugins.tools.pipeline.machine import BF16_CAPABILITY, this_machine

OURS = "fairseq-deep"
FAIRSEQ = "fairseq-fixed"
INSTALL_FAIRSEQ = f"pip install --no-build-isolation {FAIRSEQ}"
# Of a package that is there, pip would keep what is broken.
REBUILD_FAIRSEQ = f"{INSTALL_FAIRSEQ} --force-reinstall --no-deps --no-cache-dir, with a C++ compiler and cython"
OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"
"""Levels: no problem; something optional is missing; a training may go wrong; no training can start."""
EXTENSIONS = (
    ("fairseq.data.data_utils_fast", ERROR, "no batch can be made"),
    ("fairseq.data.token_block_utils_fast", WARNING, "no language model can be trained"),
    ("fairseq.libbleu", WARNING, "--scoring bleu fails; --scoring sacrebleu works"),
)
"""Compiled parts of fairseq: module, level and consequence if it is missing."""


class Finding(NamedTuple):
    """A line of the report: its level, what it is about, what was found, and what helps."""

    level: str
    about: str
    says: str
    cure: str = ""


def main(argv: Sequence[str]) -> int:
    """Print what was found; 0 if training can start, 1 if it cannot."""
    OneLineParser(
        prog="fairseq-deep doctor",
        description="Report on this environment: versions, pip check, the precisions of each GPU, whether fairseq is "
        "compiled and accepts the methods of this package. Exit code 0: training can start; 1: it cannot.",
    ).read(argv)
    findings = list(examine())
    width = max(len(finding.about) for finding in findings) + 2
    for level, about, says, cure in findings:
        print(f"{level:<9}{about:<{width}}{says}")
        if cure:
            print(f"{'':<{9 + width}}-> {cure}")
    errors, warnings = (
        ", ".join(dict.fromkeys(finding.about for finding in findings if finding.level == level))
        for level in (ERROR, WARNING)
    )
    look = f"; look at: {warnings}" if warnings else ""
    print(f"\ntraining cannot start: {errors}" if errors else f"\ntraining can start{look}")
    return int(bool(errors))


def examine() -> Iterator[Finding]:
    """Yield every finding; without a fairseq that can be imported, only those that do not need it."""
    yield from versions()
    # pip and the import of fairseq take seconds each.
    with ThreadPoolExecutor(1) as beside:
        of_pip = beside.submit(lambda: list(pip_check()))
        problem = registration()
        yield from of_pip.result()
    if problem:
        cure = INSTALL_FAIRSEQ if "No module named 'fairseq'" in problem else REBUILD_FAIRSEQ
        yield Finding(ERROR, "fairseq", f"cannot be imported: {problem}", cure)
        return
    import fairseq

    from fairseq_plugins.core.method import METHODS

    yield Finding(OK, "fairseq", str(Path(fairseq.__file__).parent))
    yield Finding(OK, "--user-dir", str(Path(fairseq_plugins.__file__).resolve().parent))
    yield Finding(OK, "methods", f"{len(METHODS)} are registered")
    yield from extensions()
    yield from gpus()


def registration() -> str:
    """Register our methods with fairseq; return why that fails, or nothing."""
    try:
        # Log lines of the import belong to a training, not to this report.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            fairseq_plugins.register()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def versions() -> Iterator[Finding]:
    """Yield the versions of the system, of Python, of this package and of what it needs, as its metadata says."""
    yield Finding(OK, "system", platform.platform())
    yield Finding(OK, "Python", platform.python_version())
    with contextlib.suppress(metadata.PackageNotFoundError):
        stock = metadata.version("fairseq")
        says = f"{stock}, stock fairseq: Python 3.11 cannot import it, and with Python 3.10 it cannot translate"
        yield Finding(ERROR, "fairseq", says, f"pip uninstall fairseq {FAIRSEQ}, then {INSTALL_FAIRSEQ}")
    try:
        requirements = metadata.requires(OURS) or []
    except metadata.PackageNotFoundError:
        yield Finding(NOTE, OURS, "imported from a directory, not installed", "pip install --editable .")
        return
    own, revision = metadata.version(OURS), commit()
    yield Finding(OK, OURS, f"{own}, commit {revision}" if revision else own)
    for requirement in requirements:
        name, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == \W(\w+)", requirement)
        if name is None or (extra and extra[1] == "dev"):
            continue
        try:
            yield Finding(OK, name[0], metadata.version(name[0]))
        except metadata.PackageNotFoundError:
            usual = f"pip install '{OURS}[{extra[1]}]'" if extra else f"pip install '{requirement}'"
            cure = INSTALL_FAIRSEQ if name[0] == FAIRSEQ else usual
            yield Finding(NOTE if extra else ERROR, name[0], "not installed", cure)


def pip_check() -> Iterator[Finding]:
    """Yield each package that does not fit another one, as pip says."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    if done.returncode == 0 or not done.stdout:
        yield Finding(OK if done.stdout else NOTE, "pip check", (done.stdout or done.stderr).strip())
        return
    for line in done.stdout.splitlines():
        about = line.split()[0]
        yield Finding(ERROR if about in (OURS, FAIRSEQ) else WARNING, about, line)


def extensions() -> Iterator[Finding]:
    """Yield whether each compiled part of fairseq is there."""
    for module, level, consequence in EXTENSIONS:
        try:
            import_module(module)
        except ImportError as error:
            yield Finding(level, module, f"cannot be imported ({error}): {consequence}", REBUILD_FAIRSEQ)
        else:
            yield Finding(OK, module, "compiled")


def gpus() -> Iterator[Finding]:
    """Yield the processor, and every GPU with the precisions in which it can train."""
    import torch

    machine = this_machine(cpu_wanted=True)
    yield Finding(OK, "processor", f"{machine.processor}, {machine.cores} cores for this process")
    yield Finding(OK, "CUDA of torch", torch.version.cuda or "none")
    if not torch.cuda.is_available():
        says = "torch can use none: training runs on the CPU, which is slow"
        yield Finding(NOTE, "GPU", says, "python -m torch.utils.collect_env, which knows the driver, if there is one")
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        says = "--bf16, --fp16 and --amp"
        if device.major < BF16_CAPABILITY[0]:
            says = "no bfloat16: --fp16 or --amp instead of --bf16, which is only emulated"
        yield Finding(OK if device.major >= BF16_CAPABILITY[0] else NOTE, f"GPU {number}", f"{device.name}: {says}")
