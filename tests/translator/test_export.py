"""``fairseq-deep export``: nothing appears unless both models agree, and a package gets an engine."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("ctranslate2")

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.translator import ctranslate2_model, engines, equivalence, export
from fairseq_plugins.tools.translator.engines import AUTO, CTRANSLATE2, FAIRSEQ, SearchOptions, choose
from fairseq_plugins.tools.translator.package import Package, open_package
from fairseq_plugins.tools.translator.translate import Translator
from tests import models
from tests.processes import Command
from tests.translator.conftest import Made


@pytest.fixture
def run(deep: Command) -> Command:
    return partial(deep, "export")


def test_the_fastest_engine_is_chosen(made: Made, package: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (made.data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    ours = Translator(package, beam=1).translate(lines)
    code, _, out = run(package)
    assert code == 0
    compared, beam, *_ = out.splitlines()
    assert compared.startswith(f"{package}, float32: ")
    assert float(compared.partition("largest difference ")[2].partition(",")[0]) < 1e-4
    assert beam.startswith("beam search: ")
    assert out.splitlines()[-1].startswith(f"{package}/ctranslate2-float32: ")
    translator = Translator(package, beam=1)
    assert translator.engine == "ctranslate2-float32"
    theirs = translator.translate(lines)
    # Sentences that may have reached the limit of their length are left out: the two do not count alike there.
    finished = [(a, b) for a, b in zip(ours, theirs, strict=True) if len(a.text.split()) < 12]
    assert len(finished) > 4
    assert [a.text for a, _ in finished] == [b.text for _, b in finished]
    # They differ by what an empty translation would have: see test_ctranslate2_model.
    assert all(a.score == pytest.approx(b.score, abs=0.1) for a, b in finished)
    # Without a library CTranslate2 fails in its first batch.
    failed: Future[None] = Future()
    failed.set_exception(RuntimeError("Library libcublas.so.12 is not found or cannot be loaded"))
    translate = SimpleNamespace(device="cuda", translate_batch=lambda batch, **_: [failed] * len(batch))
    monkeypatch.setattr(translator._engine, "translator", translate)
    with pytest.raises(UserError, match="^CTranslate2: Library libcublas.so.12 is not found.*; --device cpu or "):
        translator.translate(lines)
    assert run(package, "--quantization", "int8")[0] == 0
    assert Translator(package).engine == "ctranslate2-int8"
    assert Translator(package, engine="ctranslate2-float32").engine == "ctranslate2-float32"
    assert open_package(package).content["engines"]["ctranslate2-int8"]["quantization"] == "int8"


def test_a_failed_comparison_leaves_nothing(package: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm with another epsilon is another model; its log-probabilities differ by more than rounding."""
    before = sorted(path.name for path in package.rglob("*")), (package / "translator.json").read_bytes()
    monkeypatch.setattr(ctranslate2_model, "LEARNED_EPSILON", 1e-2)
    code, errors, _ = run(package)
    assert code == 2
    assert "float32: ctranslate2 computes something else" in errors
    monkeypatch.undo()
    monkeypatch.setattr(equivalence, "LARGEST_MEAN", 1e-9)
    code, errors, _ = run(package, "--quantization", "int8")
    assert (code, "on average; nothing written" in errors) == (2, True)
    assert (sorted(path.name for path in package.rglob("*")), (package / "translator.json").read_bytes()) == before


def test_what_ctranslate2_has_not_is_said(package: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.trained("b2t_matt", "--activation-fn", "tanh")
    monkeypatch.setattr(Package, "model", lambda self: model)
    code, errors, out = run(package)
    assert (code, out) == (2, "")
    reasons = "--residual b2t, --activation-fn tanh, --attention matt; "
    assert errors.startswith(f"error: CTranslate2 does not support: {reasons}")
    assert not list(package.glob("ctranslate2*"))


def test_which_engine_is_used(package: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    how = SearchOptions({"lenpen_form": "fairseq"})
    assert choose(open_package(package), AUTO, how) == FAIRSEQ
    assert run(package)[0] == 0
    opened, gnmt = open_package(package), SearchOptions({"lenpen_form": "gnmt"})
    assert choose(opened, AUTO, how) == choose(opened, CTRANSLATE2, how) == "ctranslate2-float32"
    assert choose(opened, FAIRSEQ, how) == choose(opened, AUTO, gnmt) == FAIRSEQ
    with pytest.raises(UserError, match="only fairseq's form of the length penalty"):
        choose(opened, CTRANSLATE2, gnmt)
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert choose(opened, AUTO, how) == FAIRSEQ
    with pytest.raises(UserError, match="pip install"):
        choose(opened, CTRANSLATE2, how)


PROGRAM = """
import sys
from fairseq_plugins import Translator
print(*(translation.text for translation in Translator(sys.argv[1]).translate(sys.stdin.read().splitlines())))
"""


def test_an_export_translates_without_torch_and_fairseq(package: Path, run: Command) -> None:
    """Importing the two takes seconds, the export none; the weights that only they read may be gone."""
    assert run(package)[0] == 0
    text = "Ja, eins zwei!"
    [wanted] = Translator(package).translate([text])
    (package / "weights.safetensors").unlink()
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    for how in (["-m", "fairseq_plugins.tools.cli", "translate"], ["-c", PROGRAM]):
        command = [sys.executable, *how, str(package)]
        done = subprocess.run(command, input=f"{text}\n", capture_output=True, text=True, check=True, env=env)
        imports = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
        packages = {line.rpartition("|")[2].strip().partition(".")[0] for line in imports}
        assert packages & {"ctranslate2", "torch", "fairseq", "omegaconf"} == {"ctranslate2"}
        assert done.stdout == f"{wanted.text}\n"


def test_a_damaged_export_is_refused_and_can_be_made_again(made: Made, package: Path, run: Command) -> None:
    assert run(package)[0] == 0
    with open(package / "ctranslate2-float32" / "model.bin", "ab") as stream:
        stream.write(b"x")
    for problem in ("damaged: its SHA-256 is not the one in translator.json", "no such file"):
        with pytest.raises(UserError, match=f"ctranslate2-float32/model.bin: {problem}"):
            Translator(package)
        assert Translator(package, engine=FAIRSEQ).translate(["Ja, eins!"])[0].text
        (package / "ctranslate2-float32" / "model.bin").unlink(missing_ok=True)
    assert "exists; --force overwrites it" in run(package)[1]
    assert run(package, "--force")[0] == 0
    assert Translator(package).engine == "ctranslate2-float32"
    shutil.rmtree(package / "ctranslate2-float32")
    assert Translator(package).engine == FAIRSEQ
    assert run(package, "--quantization", "int8")[0] == 0
    assert open_package(package).content["engines"].keys() == {"ctranslate2-int8"}


def test_two_exports_at_once_are_both_entered(package: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = export.add_engine

    def after_another(directory: Path, out: Path, quantization: str) -> None:
        monkeypatch.setattr(export, "add_engine", real)
        assert run(package, "--quantization", "int16")[0] == 0
        real(directory, out, quantization)

    monkeypatch.setattr(export, "add_engine", after_another)
    assert run(package, "--quantization", "int8")[0] == 0
    assert open_package(package).content["engines"].keys() == {"ctranslate2-int8", "ctranslate2-int16"}
