"""The lists of versions agree: the bounds of setup.py, the oldest that are tested, the pinned, and their checksums."""

import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
LOCKS = ("requirements-sources.lock", "requirements.lock")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(name: str) -> dict[str, Requirement]:
    """The requirements of a file of constraints, with or without checksums."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    requirements = [Requirement(line.partition("--hash")[0].strip()) for line in lines]
    by_name = {canonicalize_name(requirement.name): requirement for requirement in requirements}
    assert len(by_name) == len(lines), f"{name} has a package twice"
    return by_name


def version(requirement: Requirement) -> Version:
    """The one version that is pinned."""
    (only,) = requirement.specifier
    assert only.operator == "=="
    return Version(only.version)


def bounds() -> dict[str, Version]:
    """The oldest version of each package that setup.py requires, extras included."""
    pairs = re.findall(r'"([\w-]+)(?:>=|==)([\d.]+)"', SETUP)
    return {canonicalize_name(name): Version(number) for name, number in pairs}


def test_oldest_versions_are_the_bounds_and_the_pinned_are_within_them() -> None:
    oldest = {name: version(requirement) for name, requirement in pinned("constraints-oldest.txt").items()}
    # fairseq requires it, and each release of it is made for one of torch.
    assert oldest.pop("torchaudio").release[:2] == oldest["torch"].release[:2]
    assert oldest == bounds()
    tested = pinned("constraints.txt")
    assert {name: bound for name, bound in bounds().items() if version(tested[name]) < bound} == {}
    (needed,) = re.findall(r"install_requires=\[(.*?)\]", SETUP, flags=re.DOTALL)
    assert re.findall(r'"([\w-]+)"', needed) == [], "each has a bound"


def test_lock_has_what_is_pinned() -> None:
    built, taken, tested = (pinned(name) for name in (*LOCKS, "constraints.txt"))
    assert not built.keys() & taken.keys()
    # The build of torch without CUDA has a local part: 2.13.0+cpu.
    locked = {name: version(requirement).public for name, requirement in {**built, **taken}.items()}
    assert locked == {name: str(version(requirement)) for name, requirement in tested.items()}
    marks = [requirement.marker for requirement in taken.values() if requirement.marker is not None]
    assert all(mark.evaluate({"python_version": "3.11"}) for mark in marks)


def test_locks_have_a_checksum_for_each_and_name_no_place() -> None:
    for name in LOCKS:
        text = (ROOT / name).read_text(encoding="utf-8")
        entries = re.split(r"\n(?=\w)", text)[1:]
        assert len(entries) == len(pinned(name))
        assert [entry.partition(" ")[0] for entry in entries if not HASH.search(entry)] == []
        # Nothing but names, versions, markers and checksums: where files come from is the choice of whoever installs.
        assert re.findall(r"://|--", HASH.sub("", text)) == []
