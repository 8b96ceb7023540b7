"""The list of breaks is up to date with the code, and the runner tells a break that is caught from one that is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.breaks.__main__ import ROOT
from tests.breaks.checking import Outcome, check, copy_of_tracked_files, made, table
from tests.breaks.listed import BREAKS
from tests.breaks.mutants import Break, changed_lines, likely_tests, mutants_of, sample


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
    counts = {broken.name: (ROOT / broken.file).read_text(encoding="utf-8").count(broken.fragment) for broken in BREAKS}
    assert {name: count for name, count in counts.items() if count != 1} == {}, "a fragment occurs once in its file"
    assert len(counts) == len(BREAKS)
    for broken in BREAKS:
        assert broken.fragment != broken.replacement
        assert [path for path in broken.tests if not (ROOT / path).exists()] == []


SOURCE = '''"""A docstring with 1 + 1."""

SIZE: int = 2


def f(x: "3 + 3", y=True):
    """Say 4."""
    if not x and y:
        raise ValueError(f"{x} is not {4 + 4}")
    print(x)
    return (x) - y < (
        5.0
    )
'''


def test_mutants_are_made_of_operators_constants_and_statements(tmp_path: Path) -> None:
    (tmp_path / "fairseq_plugins").mkdir()
    file = "fairseq_plugins/code_of.py"
    (tmp_path / file).write_text(SOURCE, encoding="utf-8")
    mutants = list(mutants_of(tmp_path, file))
    assert [(mutant.name.rpartition(":")[2], mutant.fragment, mutant.replacement) for mutant in mutants] == [
        ("3", "2", "3"),
        ("6", "True", "False"),
        ("8", "not x", "bool(x)"),
        ("8", "and", "or"),
        ("9", 'raise ValueError(f"{x} is not {4 + 4}")', "pass"),
        ("10", "print(x)", "pass"),
        ("11", "-", "+"),
        ("11", "<", "<="),
        ("12", "5.0", "6.0"),
    ]
    for mutant in mutants:
        with made(mutant, tmp_path):
            changed = (tmp_path / file).read_text(encoding="utf-8")
            compile(changed, file, "exec")
            assert changed != SOURCE
    assert (tmp_path / file).read_text(encoding="utf-8") == SOURCE
    assert [mutant.fragment for mutant in mutants_of(tmp_path, file, {11, 12})] == ["-", "<", "5.0"]
    drawn = sample(mutants, 3, seed=1)
    assert len(drawn) == 3
    assert drawn == sorted(sample(mutants, 3, seed=1), key=mutants.index)


def test_tests_of_a_mutant() -> None:
    assert likely_tests(ROOT, "fairseq_plugins/methods/admin.py") == ("tests/methods/test_admin.py", "tests/contract")
    assert likely_tests(ROOT, "fairseq_plugins/search/beam.py") == ("tests/search",)


def test_lines_changed_since_a_revision(tree: Path) -> None:
    package = tree / "fairseq_plugins"
    package.mkdir()
    (package / "a.py").write_text("a = 1\nb = 2\nc = 3\n")
    git = ["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (package / "a.py").write_text("a = 1\nb = 5\nc = 3\nd = 4\ne = 5\n")
    assert changed_lines(tree, "HEAD") == {"fairseq_plugins/a.py": {2, 4, 5}}


def test_a_break_is_caught_by_the_later_tests_unless_those_that_are_named_run_alone(tree: Path) -> None:
    doubled = broken("2 * x", "3 * x")
    assert check(doubled, tree).caught_by == "tests/test_later.py::test_twice"
    assert "2 * x" in (tree / "code_of.py").read_text()
    assert check(doubled, tree, rest=False).caught_by == ""


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
