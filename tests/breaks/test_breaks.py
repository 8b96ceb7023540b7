"""The list of breaks is up to date with the code, and the runner tells a break that is caught from one that is not."""

import subprocess
from pathlib import Path

import pytest

from tests.breaks.checking import ROOT, Break, Outcome, check, copy_of_tracked_files, likely_tests, listed, table


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two functions, one of which is tested, by the second of two files."""
    # The plugins take seconds to import, and these tests need none.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = tmp_path / "tree"
    root.mkdir()
    (root / "code_of.py").write_text("def twice(x):\n    return 2 * x\n\n\ndef same(x):\n    return x\n")
    (root / "tests").mkdir()
    (root / "tests" / "test_later.py").write_text(
        "import code_of\n\n\ndef test_twice():\n    assert code_of.twice(3) == 6\n"
    )
    (root / "tests" / "test_first.py").write_text("def test_nothing():\n    pass\n")
    return root


def broken(fragment: str, replacement: str) -> Break:
    return Break("one", "code_of.py", fragment, replacement, "something", ("tests/test_first.py",))


def test_every_break_changes_something_and_names_tests_that_exist() -> None:
    for broken in listed().values():
        assert (ROOT / broken.file).read_text(encoding="utf-8").count(broken.fragment) == 1, broken.name
        assert broken.fragment != broken.replacement
        assert [path for path in broken.tests if not (ROOT / path).exists()] == []


def test_tests_of_a_break() -> None:
    assert likely_tests(ROOT, "fairseq_plugins/methods/admin.py") == ("tests/methods/test_admin.py", "tests/contract")
    assert likely_tests(ROOT, "fairseq_plugins/search/beam.py") == ("tests/search",)


def test_a_break_is_caught_by_the_later_tests(tree: Path) -> None:
    doubled = broken("2 * x", "3 * x")
    assert check(doubled, tree).caught_by == "tests/test_later.py::test_twice"
    assert "2 * x" in (tree / "code_of.py").read_text()


def test_a_break_that_no_test_catches_and_one_that_keeps_the_tests_from_running(tree: Path) -> None:
    # Fails in every copy, which says nothing of the break.
    (tree / "tests" / "cli").mkdir()
    (tree / "tests" / "cli" / "test_installation.py").write_text("def test_tracked():\n    assert False\n")
    survived = check(broken("return x", "return -x"), tree)
    assert (survived.caught_by, survived.unclear) == ("", "")
    unclear = check(broken("def twice", "de twice"), tree)
    assert unclear.caught_by == ""
    assert "ERROR tests/test_later.py" in unclear.unclear
    rows = table([survived, unclear, Outcome(survived.broken, 2.4, "tests/a.py::b")]).splitlines()
    assert rows[2].startswith("| one | something | **no test** | ")
    assert rows[3].startswith("| one | something | could not run | ")
    assert rows[4] == "| one | something | `tests/a.py::b` | 2 |"


def test_only_tracked_files_are_copied(tree: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "-C", tree, "init", "-q"], check=True)
    subprocess.run(["git", "-C", tree, "add", "code_of.py", "tests"], check=True)
    (tree / "left-over.txt").touch()
    (tree / "tests" / "test_first.py").unlink()
    copy_of_tracked_files(tree, tmp_path / "copy")
    copied = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*.*")}
    assert copied == {"code_of.py", "tests/test_later.py"}
