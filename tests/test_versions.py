"""The lists of versions agree: the bounds of setup.py, the oldest that are tested, the pinned, and their checksums."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements-sources.lock", "requirements.lock")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(name: str) -> dict[str, Requirement]:
    """The requirements of a file of constraints, with or without checksums."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = [Requirement(line.partition("--hash")[0].strip()) for line in lines]
    return {canonicalize_name(one.name): one for one in found}


def version(requirement: Requirement) -> Version:
    """The one version that is pinned."""
    (only,) = requirement.specifier
    assert only.operator == "=="
    return Version(only.version)


def bounds() -> dict[str, Version]:
    """The oldest version of each package that setup.py requires, extras included."""
    found = re.findall(r'"([\w-]+)(?:>=|==)([\d.]+)"', (ROOT / "setup.py").read_text(encoding="utf-8"))
    return {canonicalize_name(name): Version(number) for name, number in found}


def test_oldest_versions_are_the_bounds() -> None:
    oldest = {name: version(one) for name, one in pinned("constraints-oldest.txt").items()}
    # fairseq requires it, and each release of it is made for one of torch.
    assert oldest.pop("torchaudio").release[:2] == oldest["torch"].release[:2]
    assert oldest == bounds()


def test_every_requirement_has_a_bound() -> None:
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    (needed,) = re.findall(r"install_requires=\[(.*?)\]", setup, flags=re.DOTALL)
    assert re.findall(r'"([\w-]+)"', needed) == []


def test_pinned_versions_are_within_the_bounds() -> None:
    tested = pinned("constraints.txt")
    assert {name: bound for name, bound in bounds().items() if version(tested[name]) < bound} == {}


def test_lock_has_what_is_pinned() -> None:
    built, taken, tested = (pinned(name) for name in (*LOCKS, "constraints.txt"))
    assert not built.keys() & taken.keys()
    # The build of torch without CUDA has a local part: 2.13.0+cpu.
    found = {name: version(one).public for name, one in {**built, **taken}.items()}
    assert found == {name: str(version(one)) for name, one in tested.items()}
    marks = [one.marker for one in taken.values() if one.marker is not None]
    assert all(mark.evaluate({"python_version": "3.11"}) for mark in marks)


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_a_checksum_for_each_and_names_no_place(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\w)", text)[1:]
    assert len(entries) == len(pinned(name))
    assert [entry.partition(" ")[0] for entry in entries if not HASH.search(entry)] == []
    # Nothing but names, versions, markers and checksums: where the files come from is the choice of whoever installs.
    assert re.findall(r"://|--", HASH.sub("", text)) == []


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-oldest.txt", *LOCKS])
def test_no_package_twice(name: str) -> None:
    lines = re.findall(r"^([\w.-]+)==", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(lines) == len(pinned(name))
