"""Checks of versions: Python, and every package that a training, its data and its scores depend on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec

from fairseq_plugins.doctor.finding import UPSTREAM, Finding, Level

PYTHON = ((3, 10), (3, 13))
"""The oldest and the newest Python that are supported."""

FAIRSEQ = "fairseq-fixed"
TESTED_FAIRSEQ = "0.12.3.1"
INSTALL_FAIRSEQ = f"pip install --no-build-isolation {FAIRSEQ}=={TESTED_FAIRSEQ}"
STRICT_PIP = (24, 1)


@dataclass(frozen=True)
class Package:
    """A package and its requirements.

    Args:
        name: its name for pip.
        tested: the version that the tests run with, as in ``constraints.txt``; empty if not pinned.
        minimum: the oldest version that works; empty if unknown.
        without: what does not work without it.
        needed: whether training or its data need it.
        thread: address that explains what an older one does.
    """

    name: str
    tested: str
    minimum: str
    without: str
    needed: bool = True
    thread: str = ""


PACKAGES: tuple[Package, ...] = (
    Package("torch", "2.13.0", "2.10", "nothing works"),
    Package("numpy", "2.4.6", "1.23.5", "nothing works"),
    Package("hydra-core", "1.3.2", "1.3.2", "fairseq cannot be imported", thread=f"{UPSTREAM}4675"),
    Package("omegaconf", "2.3.0", "2.3.0", "fairseq cannot be imported", thread=f"{UPSTREAM}4675"),
    Package("scikit-learn", "1.9.1", "1.2.2", "fairseq cannot be imported"),
    Package("sacrebleu", "2.6.0", "2.3.1", "no score"),
    Package("sentencepiece", "0.2.3", "0.1.99", "no SentencePiece subwords"),
    Package("subword-nmt", "0.3.8", "0.3.7", "no byte-pair subwords"),
    Package("sacremoses", "0.2.0", "0.1.0", "no tokenisation without a checkout of Moses"),
    Package("matplotlib", "3.11.2", "3.8.0", "no pictures", needed=False),
    Package("tensorboardX", "2.6.5", "", "--tensorboard-logdir writes nothing", needed=False),
    Package("wandb", "", "", "--wandb-project writes nothing", needed=False),
)


def installed(name: str) -> str | None:
    """Return the installed version, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """Read ``2.13.0+cpu`` as (2, 13, 0): enough to compare releases."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def python() -> Iterator[Finding]:
    """Check that this Python is supported."""
    version, (oldest, newest) = sys.version_info[:2], PYTHON
    says = ".".join(map(str, sys.version_info[:3]))
    if oldest <= version <= newest:
        yield Finding(Level.OK, "Python", says)
        return
    legal = f"{'.'.join(map(str, oldest))} to {'.'.join(map(str, newest))}"
    yield Finding(
        Level.ERROR, "Python", f"{says}; supported: {legal}", f"make setup PYTHON=python{newest[0]}.{newest[1]}"
    )


def packages() -> Iterator[Finding]:
    """Yield one finding for each package of :data:`PACKAGES`."""
    for package in PACKAGES:
        yield _finding(package, installed(package.name))


def _finding(package: Package, version: str | None) -> Finding:
    if version is None:
        level = Level.ERROR if package.needed else Level.NOTE
        return Finding(level, package.name, f"not installed: {package.without}", f"pip install {package.name}")
    if numbers(version) < numbers(package.minimum):
        cure = f"pip install '{package.name}>={package.minimum}'"
        says = f"{version} is too old; {package.minimum} is the oldest that works"
        return Finding(Level.ERROR, package.name, says, cure, package.thread)
    other = package.tested and numbers(version) != numbers(package.tested)
    return Finding(Level.OK, package.name, version + (f" (tested: {package.tested})" if other else ""))


def fairseq_distribution() -> Iterator[Finding]:
    """Check which of the packages that are imported as ``fairseq`` is installed."""
    ours, stock = installed(FAIRSEQ), installed("fairseq")
    if stock is not None:
        yield _stock_fairseq(stock, ours)
    elif ours is not None:
        exact = ours == TESTED_FAIRSEQ
        tested = "" if exact else f" (tested: {TESTED_FAIRSEQ}; the patches are written for it)"
        yield Finding(Level.OK if exact else Level.WARNING, FAIRSEQ, ours + tested)
    elif find_spec("fairseq") is not None:
        yield Finding(
            Level.WARNING, "fairseq", f"not from a package; the patches are written for {FAIRSEQ} {TESTED_FAIRSEQ}"
        )
    else:
        yield Finding(Level.ERROR, FAIRSEQ, "not installed", INSTALL_FAIRSEQ)
        yield from _pip()


def _stock_fairseq(stock: str, ours: str | None) -> Finding:
    if ours is not None:
        says = f"fairseq {stock} and {FAIRSEQ} {ours} are both installed, and overwrite each other's files"
        cure = f"pip uninstall fairseq {FAIRSEQ}, then {INSTALL_FAIRSEQ}"
        return Finding(Level.ERROR, "fairseq", says, cure)
    cure = f"pip uninstall fairseq, then {INSTALL_FAIRSEQ}"
    if sys.version_info >= (3, 11):
        says = f"{stock}, which Python 3.11 and later cannot import (mutable default ... CommonConfig)"
        return Finding(Level.ERROR, "fairseq", says, cure, f"{UPSTREAM}5012")
    says = f"{stock}, which trains but cannot translate (RuntimeError: Mask Type should be defined)"
    return Finding(Level.ERROR, "fairseq", says, cure, f"{UPSTREAM}4858")


def _pip() -> Iterator[Finding]:
    """Check pip, only if fairseq is not installed yet."""
    version = installed("pip")
    if version is not None and numbers(version) >= STRICT_PIP:
        says = f"{version} refuses fairseq 0.12.2 for the metadata of its omegaconf<2.1, but accepts {FAIRSEQ}"
        yield Finding(Level.NOTE, "pip", says, INSTALL_FAIRSEQ, f"{UPSTREAM}5511")
