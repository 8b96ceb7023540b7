"""``fairseq-deep compare``: a chain to its report, and refusals that come before days of training."""

import sys
from pathlib import Path

import pytest
import torch

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.pipeline import compare
from fairseq_plugins.tools.pipeline.compare import CompareOptions, Training, run_directory, train_all
from tests.scripts import test_train
from tests.scripts.fakes import program


def test_the_flags_reach_each_training_and_each_evaluation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # A change that names a YAML file is no configuration.
    changes = "model.dropout=0 task.config_yaml=config_st.yaml"
    words = f"multi30k_de_en/admin_3e3d {changes} --seeds 1 2 --precision fp32 --quiet --beam 7 --dry-run"
    assert main(["compare", str(tmp_path), str(tmp_path / "out"), *words.split()]) == 0
    output, errors = capfd.readouterr()
    assert errors == ""
    commands = [line.partition(" fairseq_plugins.tools.cli ")[2] for line in output.splitlines()]
    places = [f"{tmp_path}/out/admin_3e3d/seed{seed}" for seed in (1, 2)]
    config = test_train.ADMIN
    assert commands[:-1] == [
        command
        for seed, place in enumerate(places, start=1)
        for command in (
            f"run {config} {tmp_path} {place} common.seed={seed} {changes} --precision=fp32 --quiet",
            f"evaluate {place} {tmp_path} --beam=7",
        )
    ]
    assert commands[-1] == f"report {places[0]} {places[1]} --output {tmp_path}/out/report"
    assert not (tmp_path / "out").exists()


def test_a_comparison_goes_on_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "train_all", lambda *_: None)
    monkeypatch.setattr(compare, "report", lambda *_: None)
    (tmp_path / "data").mkdir()
    for place, data, code in ((tmp_path, "data", 0), (tmp_path / "data", ".", 0), (tmp_path / "data", "..", 2)):
        monkeypatch.chdir(place)
        assert main(["compare", data, str(tmp_path / "out"), "multi30k_de_en/admin_3e3d"]) == code


STEP = """
import os, sys, time
from pathlib import Path
command, place = sys.argv[3], Path(sys.argv[6] if sys.argv[3] == "run" else sys.argv[4])
place.mkdir(parents=True, exist_ok=True)
print(command, place.parent.name, place.name)
if command == "run":
    (place / "begun").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    deadline = time.monotonic() + 60
    while len(list(place.parents[1].glob("*/*/begun"))) < int(os.environ["WANTED"]) and time.monotonic() < deadline:
        time.sleep(0.01)
sys.exit(int(os.environ.get(f"{command}_{place.parent.name}", "0")))
"""


def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: int) -> tuple[list[Training], CompareOptions]:
    """Trainings of a and b, and a Python whose ``run`` waits until so many are begun."""
    (tmp_path / "step.py").write_text(STEP)
    python = program(tmp_path / "python", f'#!/usr/bin/env bash\nexec {sys.executable} {tmp_path}/step.py "$@"\n')
    monkeypatch.setattr(compare, "DEEP", (python, "-m", "fairseq_plugins.tools.cli"))
    monkeypatch.setenv("WANTED", str(wanted))
    files = [Path("a.yaml"), Path("b.yaml")]
    trainings = [Training(file, tmp_path, run_directory(tmp_path, file, 1), ()) for file in files]
    return trainings, CompareOptions(parallel=wanted)


def test_as_many_trainings_at_a_time_as_are_wanted_each_on_a_gpu_of_its_own(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(compare, "visible_gpus", lambda: ["4", "7"])
    trainings, options = steps(tmp_path, monkeypatch, 2)
    train_all(trainings, options)
    said = capfd.readouterr().out.splitlines()
    assert sorted(said[:2]) == ["run a seed1", "run b seed1"]
    assert sorted(said) == ["evaluate a seed1", "evaluate b seed1", "run a seed1", "run b seed1"]
    assert sorted(path.read_text() for path in tmp_path.glob("*/seed1/begun")) == ["4", "7"]


ONE_GPU = "iwslt14_de_en/admin_6e6d"
SHARES: tuple[tuple[str, str, str | None, list[str]], ...] = (
    # Recipes for one GPU fill a machine. An update of more than one batch is shared among all GPUs, and so is a
    # training of several configurations of which one has such an update.
    (ONE_GPU, "", None, ["0", "1", "2", "3"]),
    (ONE_GPU, "--processes 2", None, ["0,1", "2,3"]),
    (f"{ONE_GPU} wmt14_en_de/post_ln_6e6d", "", None, [""]),
    (f"{ONE_GPU} optimization.update_freq=[2]", "", None, [""]),
    (f"{ONE_GPU} common.cpu=true", "", None, [""]),
    (f"{ONE_GPU} optimization.update_freq=[1", "", None, [""]),
    ("multi30k_de_en/admin_3e3d", "", None, [""]),
    # The user wants this.
    (ONE_GPU, "--parallel 1", None, [""]),
    (ONE_GPU, "--parallel 2", None, ["0,1", "2,3"]),
    (ONE_GPU, "--parallel 2 --processes 1", None, ["0", "1"]),
    ("wmt14_en_de/admin_6e6d", "--parallel 6", None, ["0", "1", "2", "3", "0", "1"]),
    (ONE_GPU, "", "GPU-5,GPU-3", ["GPU-5", "GPU-3"]),
    (ONE_GPU, "--parallel 2", "", ["", ""]),
)
"""Words and options of a comparison, the user's own CUDA_VISIBLE_DEVICES, and those of the trainings at a time."""


def test_each_training_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[list[Training], CompareOptions]] = []
    monkeypatch.setattr(compare, "train_all", lambda *one: trained.append(one))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = []
    for words, options, visible, _ in SHARES:
        monkeypatch.setattr(torch.cuda, "device_count", lambda given=visible: 4 if given is None else len(given) // 5)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert main(["compare", "data", "out", *words.split(), *options.split(), "--dry-run"]) == 0
        found.append([place.get("CUDA_VISIBLE_DEVICES", "") for place in compare.places(*trained[-1])])
    assert found == [shares for *_, shares in SHARES]


def test_what_fails_ends_all_with_its_code_but_a_diverged_training_is_not_evaluated(tmp_path, monkeypatch, capfd):
    trainings, options = steps(tmp_path, monkeypatch, 1)
    # A bug has the same exit code as a divergence, and leaves no result.
    for step, code in (("evaluate", "2"), ("run", "2"), ("run", "1")):
        monkeypatch.setenv(f"{step}_a", code)
        with pytest.raises(SystemExit, match=f"^{code}$"):
            train_all(trainings, options)
        assert "b seed1" not in capfd.readouterr().out
    (trainings[0].run / "finished").touch()
    train_all(trainings, options)
    diverged = f"{tmp_path}/a/seed1: diverged, not evaluated"
    assert capfd.readouterr().out.splitlines() == ["run a seed1", diverged, "run b seed1", "evaluate b seed1"]
