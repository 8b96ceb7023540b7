"""``fairseq-deep doctor``: what it says of this environment and of broken ones, and when training can start."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from fairseq_plugins.tools import doctor
from fairseq_plugins.tools.cli import main as command
from fairseq_plugins.tools.doctor import ERROR, NOTE, OK, WARNING, Finding
from tests import processes

ROOT = Path(__file__).resolve().parents[1]


def test_this_environment_can_train(capsys: pytest.CaptureFixture[str]) -> None:
    """The tests run in it."""
    assert doctor.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch("training can start(; look at: .*)?", lines[-1])
    says = {words[1]: words[2] for line in lines if len(words := line.split(maxsplit=2)) == 3}
    assert says["sacrebleu"] == metadata.version("sacrebleu")
    assert says["--user-dir"] == str(ROOT / "fairseq_plugins")
    assert says["fairseq.data.data_utils_fast"] == "compiled"


CONCLUSIONS = (
    (OK, NOTE, 0, "training can start"),
    (OK, WARNING, 0, "training can start; look at: b"),
    (ERROR, WARNING, 1, "training cannot start: a"),
)


def test_only_an_error_stops_a_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for first, second, code, conclusion in CONCLUSIONS:
        findings = [Finding(first, "a", "1.0", "a cure"), Finding(second, "b", "2.0")]
        monkeypatch.setattr(doctor, "examine", lambda findings=findings: iter(findings))
        assert doctor.main([]) == code
        shown = [f"{first:<9}a  1.0", f"{'':<12}-> a cure", f"{second:<9}b  2.0", ""]
        assert capsys.readouterr().out.splitlines() == [*shown, conclusion]


def test_versions_are_those_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torch": "2.13.0", "fairseq": "0.12.2", "fairseq-deep": "0.1.0"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    requirements = [
        "fairseq-fixed==0.12.3.1",
        "torch>=2.10",
        "numpy>=1.23.5",
        'jiwer>=3.0; extra == "speech"',
        'ruff; extra == "dev"',
    ]
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda name: requirements)
    monkeypatch.setattr(doctor, "commit", lambda: "abc+")
    system, _, stock, *others = list(doctor.versions())
    assert (system.about, system.says) == ("system", platform.platform())
    cure = "pip uninstall fairseq fairseq-fixed, then pip install --no-build-isolation fairseq-fixed"
    assert (stock.level, stock.cure) == (ERROR, cure)
    assert others == [
        (OK, "fairseq-deep", "0.1.0, commit abc+", ""),
        (ERROR, "fairseq-fixed", "not installed", "pip install --no-build-isolation fairseq-fixed"),
        (OK, "torch", "2.13.0", ""),
        (ERROR, "numpy", "not installed", "pip install 'numpy>=1.23.5'"),
        (NOTE, "jiwer", "not installed", "pip install 'fairseq-deep[speech]'"),
    ]


def test_pip_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, others = (f"{name} 1 requires x, which is not installed." for name in ("fairseq-deep", "wheel"))
    for code, output, errors, expected in (
        (0, "No broken requirements found.\n", "", [(OK, "pip check", "No broken requirements found.")]),
        (1, "", "No module named pip\n", [(NOTE, "pip check", "No module named pip")]),
        (1, f"{ours}\n{others}\n", "", [(ERROR, "fairseq-deep", ours), (WARNING, "wheel", others)]),
    ):
        done = SimpleNamespace(returncode=code, stdout=output, stderr=errors)
        monkeypatch.setattr(subprocess, "run", lambda *arguments, done=done, **settings: done)
        assert [finding[:3] for finding in doctor.pip_check()] == expected


def test_what_is_not_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, level, _ in doctor.EXTENSIONS:
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)  # the import then fails
            levels = {finding.about: finding.level for finding in doctor.extensions()}
        assert levels.pop(module) == level
        assert set(levels.values()) == {OK}


def test_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    generations = [7, 8, 9]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(generations))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(name="X", major=generations[number])
    )
    assert [finding.level for finding in doctor.gpus()] == [OK, OK, NOTE, OK, OK]


@pytest.mark.slow
def test_a_broken_fairseq_is_named_by_the_doctor_and_by_all_others(tmp_path: Path) -> None:
    """In a separate process that finds it before the installed one."""
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text('raise ValueError("mutable default")\n')
    said = []
    (tmp_path / "x.pt").touch()
    for words in (["doctor"], ["fold", "--help"], ["average", "--inputs", "x.pt", "--output", "y"], ["fsck", "x.pt"]):
        path = f"{tmp_path}{os.pathsep}{ROOT}"
        said.append(processes.python("-m", "fairseq_plugins.tools.cli", *words, cwd=tmp_path, PYTHONPATH=path))
    line = "error: an import has failed (ValueError: mutable default); fairseq-deep doctor says why\n"
    (code, errors, output), *others = said
    assert (code, errors, others) == (1, "", [(2, line, "")] * 3)
    advice = output.partition("cannot be imported: ValueError: mutable default\n")[2].split("\n")[0]
    # Without this pip leaves an installed fairseq as it is.
    assert "--force-reinstall" in advice
    assert output.endswith("\n\ntraining cannot start: fairseq\n")


def test_own_defect_is_not_blamed_on_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise ImportError("cannot import name 'x' from 'fairseq_plugins.core'")

    monkeypatch.setattr(command, "import_module", fail)
    monkeypatch.setitem(sys.modules, "fairseq", ModuleType("fairseq"))
    with pytest.raises(ImportError, match="fairseq_plugins"):
        command.main(["average"])
