"""``fairseq-deep doctor``: what it says of this environment and of broken ones, and when training can start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fairseq_plugins import doctor
from fairseq_plugins.cli import main as command
from fairseq_plugins.doctor import ERROR, NOTE, OK, WARNING, Finding

ROOT = Path(__file__).resolve().parents[1]


def test_this_environment_can_train(capsys: pytest.CaptureFixture[str]) -> None:
    """The tests run in it."""
    assert doctor.main(["--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["training_can_start"] is True
    says = {finding["about"]: finding["says"] for finding in content["findings"]}
    assert says["sacrebleu"] == metadata.version("sacrebleu")
    assert says["--user-dir"] == str(ROOT / "fairseq_plugins")
    assert says["torch_version"].startswith(says["torch"])
    assert says["fairseq.data.data_utils_fast"] == "compiled"


CONCLUSIONS = (
    (OK, NOTE, 0, "training can start"),
    (OK, WARNING, 0, "training can start; look at: b"),
    (ERROR, WARNING, 1, "training cannot start: a"),
)


def test_only_an_error_stops_a_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for first, second, code, conclusion in CONCLUSIONS:
        findings = [Finding("versions", first, "a", "1.0", "a cure"), Finding("pip check", second, "b", "2.0")]
        monkeypatch.setattr(doctor, "examine", lambda findings=findings: iter(findings))
        assert doctor.main([]) == code
        shown = ["versions", f"  {first:<9}a  1.0", f"{'':<14}-> a cure", "", "pip check", f"  {second:<9}b  2.0", ""]
        assert capsys.readouterr().out.splitlines() == [*shown, conclusion]


def test_versions_are_those_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torch": "2.13.0", "fairseq": "0.12.2"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    requirements = ["torch>=2.10", "numpy>=1.23.5", 'jiwer>=3.0; extra == "speech"', 'ruff; extra == "dev"']
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda name: requirements)
    stock, torch, numpy, jiwer = list(doctor.versions())[1:]
    assert (stock.level, stock.cure) == (
        ERROR,
        "pip uninstall fairseq fairseq-fixed, then pip install --no-build-isolation fairseq-fixed",
    )
    assert torch[1:] == (OK, "torch", "2.13.0", "")
    assert numpy[1:] == (ERROR, "numpy", "not installed", "pip install 'numpy>=1.23.5'")
    assert jiwer[1:] == (NOTE, "jiwer", "not installed", "pip install 'fairseq-deep[speech]'")


BROKEN = {
    "fairseq-deep": (ERROR, "fairseq-deep 0.1 requires scipy, which is not installed."),
    "wheel": (WARNING, "wheel 1 requires x, which is not installed."),
}


def test_pip_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fine, missing = "No broken requirements found.", "No module named pip"
    for code, output, errors, found in (
        (0, f"{fine}\n", "", [(OK, "pip", fine)]),
        (1, "", f"{missing}\n", [(NOTE, "pip", missing)]),
        (
            1,
            "".join(f"{line}\n" for _, line in BROKEN.values()),
            "",
            [(level, about, line) for about, (level, line) in BROKEN.items()],
        ),
    ):
        done = SimpleNamespace(returncode=code, stdout=output, stderr=errors)
        monkeypatch.setattr(subprocess, "run", lambda *arguments, done=done, **settings: done)
        assert [finding[1:4] for finding in doctor.pip_check()] == found


def test_what_is_not_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, level, consequence in doctor.EXTENSIONS:
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)  # the import then fails
            findings = {finding.about: finding for finding in doctor.extensions()}
        assert findings.pop(module).level == level
        assert {finding.level for finding in findings.values()} == {OK}
        assert consequence


def test_bfloat16() -> None:
    assert [doctor.precisions("GPU 0", generation).level for generation in (7, 8, 9)] == [NOTE, OK, OK]


class TestBrokenFairseq:
    """In a separate process that finds a broken fairseq before the installed one."""

    def run(self, directory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        (directory / "fairseq").mkdir()
        (directory / "fairseq" / "__init__.py").write_text('raise ValueError("mutable default")\n')
        return subprocess.run(
            [sys.executable, "-m", "fairseq_plugins.cli", *argv],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_doctor_says_why(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, "doctor")
        assert (done.returncode, done.stderr) == (1, "")
        assert "cannot be imported: ValueError: mutable default\n" in done.stdout
        assert done.stdout.endswith("\n\ntraining cannot start: fairseq\n")

    @pytest.mark.slow
    def test_other_commands_name_the_doctor(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, "average", "--help")
        line = "error: fairseq cannot be imported (ValueError: mutable default); fairseq-deep doctor says why\n"
        assert (done.returncode, done.stderr) == (2, line)


def test_own_defect_is_not_blamed_on_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("cannot import name 'x' from 'fairseq_plugins.core'")

    monkeypatch.setattr(command.fairseq_plugins, "register", fail)
    monkeypatch.setitem(sys.modules, "fairseq", ModuleType("fairseq"))
    with pytest.raises(ImportError, match="fairseq_plugins"):
        command.main(["average"])
