"""Checks of fairseq itself, of what is registered with it, and of its patches."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import fairseq_plugins
from fairseq_plugins.doctor.finding import UPSTREAM, Finding, Level
from fairseq_plugins.doctor.packages import INSTALL_FAIRSEQ

NAME = fairseq_plugins.__name__
_REBUILD = f"{INSTALL_FAIRSEQ} --force-reinstall --no-deps --no-cache-dir, with a C++ compiler and cython"

EXTENSIONS: tuple[tuple[str, Level, str, str], ...] = (
    ("fairseq.data.data_utils_fast", Level.ERROR, "no batch can be made", f"{UPSTREAM}2133"),
    ("fairseq.data.token_block_utils_fast", Level.WARNING, "no language model can be trained", f"{UPSTREAM}1376"),
    ("fairseq.libbleu", Level.WARNING, "--scoring bleu fails; --scoring sacrebleu works", f"{UPSTREAM}2427"),
)
"""Compiled parts of fairseq: module, severity and consequence if it is missing, explanation."""


@cache
def obstacle() -> str | None:
    """Return why fairseq cannot be imported or our methods cannot be registered; None if all is well."""
    try:
        # Log lines of the import belong to a training, not to this report.
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            fairseq_plugins.register()
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())
        return f"{type(error).__name__}: {message}" if message else type(error).__name__
    return None


def importing() -> Iterator[Finding]:
    """Check the import, which decides whether the checks that need fairseq are run."""
    problem = obstacle()
    if problem is not None:
        yield Finding(Level.ERROR, "fairseq", f"cannot be imported: {problem}", f"make setup, or {INSTALL_FAIRSEQ}")
        return
    import fairseq

    yield Finding(Level.OK, "fairseq", f"imported from {Path(fairseq.__file__).parent}")


def user_directory() -> Iterator[Finding]:
    """Report the directory for ``--user-dir``, whose name must be unique for fairseq."""
    here = Path(fairseq_plugins.__file__).resolve().parent
    others = {path for path in _namesakes() if path != here}
    if not others:
        yield Finding(Level.OK, "--user-dir", str(here))
        return
    also = ", ".join(sorted(map(str, others)))
    says = f"{here}, and there is another {NAME}: {also}; fairseq refuses the second"
    yield Finding(Level.WARNING, "--user-dir", says, "keep one of them on the path", f"{UPSTREAM}2081")


def _namesakes() -> Iterator[Path]:
    for entry in {*sys.path, str(Path.cwd())}:
        candidate = Path(entry or ".") / NAME
        if (candidate / "__init__.py").is_file():
            yield candidate.resolve()


def extensions() -> Iterator[Finding]:
    """Check the compiled parts of fairseq."""
    for module, level, without, thread in EXTENSIONS:
        try:
            import_module(module)
        except ImportError as error:
            yield Finding(level, module, f"cannot be imported ({error}): {without}", _REBUILD, thread)
        else:
            yield Finding(Level.OK, module, "compiled")


def architectures() -> Iterator[Finding]:
    """Report our architectures that are registered with fairseq."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    from fairseq_plugins.core.families import MODELS
    from fairseq_plugins.core.method import METHODS

    ours = [name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, tuple(MODELS))]
    says = f"{len(ours)} architectures of {len(METHODS)} methods are registered"
    yield Finding(Level.OK if ours else Level.ERROR, "methods", says)


def fairseq_patches() -> Iterator[Finding]:
    """Report every patch of fairseq: whether it is applied, its bug, and the upstream report."""
    from fairseq_plugins import patches

    for name in patches.MODULES:
        module = import_module(f"{patches.__name__}.{name}")
        text = (module.__doc__ or "").strip()
        bug = re.sub(r"\s+", " ", text.partition("\n\n")[0]).replace("``", "`")
        thread = re.search(r"https://github\.com/\S+?/(?:issues|pull)/\d+", text)
        active = is_applied(module)
        says = bug if active else f"not applied: {bug}"
        yield Finding(Level.OK if active else Level.NOTE, name, says, thread=thread.group() if thread else "")


def is_applied(patch: Any) -> bool:
    """Return whether every function that ``patch.apply`` would wrap is wrapped by it."""
    from fairseq_plugins.patches.wrapping import name_of, wrappers_of

    wanted: list[tuple[Any, str, Callable[..., Any]]] = []
    wrap = getattr(patch, "wrap", None)
    if wrap is None:
        # It changes something else, such as torch's list of classes, and did so at import unless that failed.
        return obstacle() is None
    patch.wrap = lambda owner, name, wrapper: wanted.append((owner, name, wrapper))
    try:
        patch.apply()
    finally:
        patch.wrap = wrap
    return bool(wanted) and all(
        name_of(wrapper) in wrappers_of(getattr(owner, name)) for owner, name, wrapper in wanted
    )
