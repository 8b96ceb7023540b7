"""The runner of machines: what it sets, in which order the tests run, and how it tells a run that failed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.machines import __main__ as machines
from tests.machines.__main__ import MACHINES, ROOT, Machine


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """Tests of another project: a dozen that pass, and one that passes in the environment of ``threads`` only."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -p no:randomly -p no:cacheprovider\n")
    many = "".join(f"def test_{letter}():\n    pass\n\n" for letter in "abcdefghijkl")
    (tmp_path / "test_many.py").write_text(many)
    (tmp_path / "test_threads.py").write_text(
        "import os\n\n\ndef test_two():\n    assert os.environ.get('TEST_THREADS') == '2'\n"
    )
    return tmp_path


def test_every_directory_of_a_machine_is_there() -> None:
    assert [name for machine in MACHINES.values() for name in machine.tests if not (ROOT / name).is_dir()] == []


def test_settings_of_another_machine_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("DEEP_NMT_DATA", "somewhere")
    found = machines.environment(MACHINES["threads"])
    assert (found.get("MKL_CBWR"), found["TEST_THREADS"], found["DEEP_NMT_DATA"]) == (None, "2", "somewhere")


def test_failure_is_seen(tests: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TEST_THREADS", raising=False)
    flags = ["--workers", "0", "--tests", str(tests)]
    assert machines.main(["--only", "first", "threads", *flags]) == 1
    rows = capfd.readouterr().out.splitlines()[-2:]
    assert re.search(r"\| first +\| .*\| FAILED: 1 failed, 12 passed in ", rows[0])
    assert re.search(r"\| threads +\| .*\| 13 passed in ", rows[1])
    assert machines.main(["--only", "threads", *flags]) == 0


def test_machine_that_this_one_cannot_be(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(machines.MACHINES, "newer", Machine("a processor of tomorrow", kernels="AVX9000"))
    assert machines.main(["--only", "newer"]) == 0
    assert "not run: this processor lacks the instructions" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("pytest_randomly") is None, reason="pytest-randomly is not installed")
def test_seed_repeats_the_order(tests: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the settings of pytest turn the plugin off, as ours do."""

    def order(seed: int) -> list[str]:
        words = machines.command(MACHINES["order"], [str(tests / "test_many.py"), "-vv"], 0, seed)
        assert machines.run(MACHINES["order"], words)[0] == 0
        return re.findall(r"::(test_\w) PASSED", capfd.readouterr().out)

    first = order(1)
    assert len(first) == 12
    assert first == order(1) != sorted(first)
    assert order(2) != first
