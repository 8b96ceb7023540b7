"""``fairseq-deep doctor``: can a training start in this environment?

Most of that is known to others, who are asked: the metadata of the installed packages, ``pip check`` and
``torch.utils.collect_env``. Three questions are left: Is fairseq compiled? Can our methods be registered with it? In
which precisions can this machine train?
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

import fairseq_plugins
from fairseq_plugins.options import OneLineParser

OURS = "fairseq-deep"
FAIRSEQ = "fairseq-fixed"
INSTALL_FAIRSEQ = f"pip install --no-build-isolation {FAIRSEQ}"
OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"
"""Levels: no problem; something optional is missing; a training may go wrong; no training can start."""
EXTENSIONS = (
    ("fairseq.data.data_utils_fast", ERROR, "no batch can be made"),
    ("fairseq.data.token_block_utils_fast", WARNING, "no language model can be trained"),
    ("fairseq.libbleu", WARNING, "--scoring bleu fails; --scoring sacrebleu works"),
)
"""Compiled parts of fairseq: module, level and consequence if it is missing."""
BFLOAT16 = 8
"""The first generation of NVIDIA's GPUs (compute capability) that computes in bfloat16."""


class Finding(NamedTuple):
    """A line of the report: its topic and level, what it is about, what was found, and what helps."""

    topic: str
    level: str
    about: str
    says: str
    cure: str = ""


def main(argv: Sequence[str]) -> int:
    """Print what was found; 0 if training can start, 1 if it cannot."""
    parser = OneLineParser(
        prog="fairseq-deep doctor",
        description="Report on this environment: versions, pip check, torch's own report, whether fairseq is compiled "
        "and accepts the methods of this package, and bfloat16. Exit code 0: training can start; 1: it cannot.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    as_json = parser.read(argv).json
    findings = list(examine())
    can_train = not any(finding.level == ERROR for finding in findings)
    if as_json:
        listed = [finding._asdict() for finding in findings]
        print(json.dumps({"training_can_start": can_train, "findings": listed}, indent=1, ensure_ascii=False))
    else:
        print("\n".join([*_lines(findings), "", conclusion(findings)]))
    return int(not can_train)


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    width = max(len(finding.about) for finding in findings) + 2
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            yield from ([""] if topic else [])
            topic = finding.topic
            yield topic
        yield f"  {finding.level:<9}{finding.about:<{width}}{finding.says}"
        if finding.cure:
            yield f"{'':<{11 + width}}-> {finding.cure}"


def conclusion(findings: Sequence[Finding]) -> str:
    """Return one line: whether training can start, and what to look at."""
    errors, warnings = (
        ", ".join(dict.fromkeys(finding.about for finding in findings if finding.level == level))
        for level in (ERROR, WARNING)
    )
    if errors:
        return f"training cannot start: {errors}"
    return "training can start" + (f"; look at: {warnings}" if warnings else "")


def examine() -> Iterator[Finding]:
    """Yield every finding; without a fairseq that can be imported, only those that do not need it."""
    yield from versions()
    yield from pip_check()
    problem = obstacle()
    if problem:
        yield Finding("fairseq", ERROR, "fairseq", f"cannot be imported: {problem}", INSTALL_FAIRSEQ)
        return
    yield from machine()
    yield from extensions()
    yield from registered()


def versions() -> Iterator[Finding]:
    """Yield the versions of Python and of what this package needs, as its metadata says."""
    yield Finding("versions", OK, "Python", platform.python_version())
    with contextlib.suppress(metadata.PackageNotFoundError):
        stock = metadata.version("fairseq")
        says = f"{stock}, stock fairseq: Python 3.11 cannot import it, and with Python 3.10 it cannot translate"
        yield Finding("versions", ERROR, "fairseq", says, f"pip uninstall fairseq {FAIRSEQ}, then {INSTALL_FAIRSEQ}")
    try:
        requirements = metadata.requires(OURS) or []
    except metadata.PackageNotFoundError:
        yield Finding("versions", NOTE, OURS, "imported from a directory, not installed", "pip install --editable .")
        return
    for requirement in requirements:
        name, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == \W(\w+)", requirement)
        if name is None or (extra and extra[1] == "dev"):
            continue
        try:
            yield Finding("versions", OK, name[0], metadata.version(name[0]))
        except metadata.PackageNotFoundError:
            cure = f"pip install '{OURS}[{extra[1]}]'" if extra else f"pip install '{requirement}'"
            yield Finding("versions", NOTE if extra else ERROR, name[0], "not installed", cure)


def pip_check() -> Iterator[Finding]:
    """Yield each package that does not fit another one, as pip says."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    if done.returncode == 0 or not done.stdout:
        yield Finding("pip check", OK if done.stdout else NOTE, "pip", (done.stdout or done.stderr).strip())
        return
    for line in done.stdout.splitlines():
        about = line.split()[0]
        yield Finding("pip check", ERROR if about in (OURS, FAIRSEQ) else WARNING, about, line)


def obstacle() -> str:
    """Return why fairseq cannot be imported or our methods cannot be registered; empty if all is well."""
    try:
        # Log lines of the import belong to a training, not to this report.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            fairseq_plugins.register()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def machine() -> Iterator[Finding]:
    """Yield what torch reports about this machine, then every GPU with its precisions."""
    import torch
    from torch.utils.collect_env import get_env_info

    report: Any = get_env_info()
    for about in ("os", "torch_version", "cuda_compiled_version", "nvidia_driver_version", "nvidia_gpu_models"):
        if value := getattr(report, about):
            yield Finding("torch.utils.collect_env", OK, about, str(value).replace("\n", "; "))
    if not torch.cuda.is_available():
        yield Finding("precision", NOTE, "GPU", "torch can use none: training needs --cpu and is slow, in float32")
    for number in range(torch.cuda.device_count()):
        yield precisions(f"GPU {number}", torch.cuda.get_device_properties(number).major)


def precisions(name: str, generation: int) -> Finding:
    """Return the precisions in which a GPU of this generation (major compute capability) can train."""
    if generation >= BFLOAT16:
        return Finding("precision", OK, name, "--bf16, --fp16 and --amp")
    return Finding("precision", NOTE, name, "no bfloat16: --fp16 or --amp instead of --bf16, which is only emulated")


def extensions() -> Iterator[Finding]:
    """Yield whether each compiled part of fairseq is there."""
    for module, level, consequence in EXTENSIONS:
        try:
            import_module(module)
        except ImportError as error:
            cure = f"{INSTALL_FAIRSEQ} --force-reinstall --no-deps --no-cache-dir, with a C++ compiler and cython"
            yield Finding("fairseq", level, module, f"cannot be imported ({error}): {consequence}", cure)
        else:
            yield Finding("fairseq", OK, module, "compiled")


def registered() -> Iterator[Finding]:
    """Yield where fairseq is, and how many of our architectures it knows."""
    import fairseq
    from fairseq.models import ARCH_MODEL_REGISTRY

    from fairseq_plugins.core.families import MODELS
    from fairseq_plugins.core.method import METHODS

    ours = [name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, tuple(MODELS))]
    yield Finding("fairseq", OK, "fairseq", str(Path(fairseq.__file__).parent))
    yield Finding("fairseq", OK, "--user-dir", str(Path(fairseq_plugins.__file__).resolve().parent))
    says = f"{len(METHODS)} methods, {len(ours)} architectures are registered"
    yield Finding("fairseq", OK if ours else ERROR, "methods", says)
