"""The list of breaks is up to date with the code, and the runner tells a break that is caught from one that is not."""

import subprocess
from pathlib import Path

import pytest

from tests.breaks.__main__ import ROOT, check, copy_of_tracked_files, likely_tests, listed
from tests.texts import write


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two functions, one of which is tested, by the second of two files."""
    # The plugins take seconds to import, and these tests need none.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = tmp_path / "tree"
    code = ["def twice(x):", "    return 2 * x", "def same(x):", "    return x"]
    write(root / "fairseq_plugins" / "__init__.py", code)
    write(root / "tests" / "test___init__.py", ["def test_nothing(): pass"])
    lines = ["import fairseq_plugins", "def test_twice():", "    assert fairseq_plugins.twice(3) == 6"]
    write(root / "tests" / "test_later.py", lines)
    # Fails in every copy, which says nothing of a break.
    write(root / "tests" / "cli" / "test_installation.py", ["def test_tracked(): assert False"])
    return root


def test_every_break_changes_something() -> None:
    for name, broken in listed().items():
        text = (ROOT / "fairseq_plugins" / broken["file"]).read_text(encoding="utf-8")
        assert text.count(broken["fragment"]) == 1, name
        assert broken["fragment"] != broken["replacement"]


def test_tests_of_a_break() -> None:
    assert likely_tests(ROOT, "methods/admin.py") == ["tests/methods/test_admin.py", "tests/contract"]
    assert likely_tests(ROOT, "search/beam.py") == ["tests/search"]
    assert likely_tests(ROOT, "tools/workers.py") == ["tests/test_workers.py"]


@pytest.mark.parametrize(
    ("fragment", "replacement", "outcome"),
    [
        ("2 * x", "3 * x", (True, "tests/test_later.py::test_twice")),
        ("return x", "return -x", (False, "no test")),
        ("def twice", "de twice", (False, "the tests cannot run: tests/test_later.py")),
    ],
)
def test_which_test_catches_a_break(fragment: str, replacement: str, outcome: tuple[bool, str], tree: Path) -> None:
    broken = {"file": "__init__.py", "fragment": fragment, "replacement": replacement}
    assert check(broken, tree) == outcome
    assert "2 * x" in (tree / "fairseq_plugins" / "__init__.py").read_text()


def test_only_tracked_files_are_copied(tree: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "-C", tree, "init", "-q"], check=True)
    subprocess.run(["git", "-C", tree, "add", "fairseq_plugins", "tests/test_later.py"], check=True)
    (tree / "fairseq_plugins" / "left-over.txt").touch()
    (tree / "tests" / "test_later.py").unlink()
    copy_of_tracked_files(tree, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").rglob("*.*")] == ["__init__.py"]
