"""YAML files that try to run something: nothing is executed, and one line says what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.configuration import read_configuration
from tests import processes

RECIPE = """
common: {cpu: true}
task: {_name: translation, data: nowhere, source_lang: de, target_lang: en}
model: {_name: admin_transformer}
criterion: {_name: label_smoothed_cross_entropy}
optimizer: {_name: adam}
lr_scheduler: {_name: inverse_sqrt}
"""
HOSTILE: dict[str, tuple[str, str]] = {
    "tag": (
        "dataset: {max_tokens: !!python/object/apply:os.system [touch executed]}",
        "could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.system'",
    ),
    "new tag": (
        "dataset: {max_tokens: !!python/object/new:subprocess.Popen [[touch, executed]]}",
        "could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/new:subprocess.Popen'",
    ),
    "callback": (
        "hydra: {callbacks: {one: {_target_: subprocess.check_call, args: [touch, executed]}}}",
        "hydra.callbacks.one._target_: 'subprocess.check_call' is not called",
    ),
    "callback by reference": (
        "hydra: {callbacks: {one: {_target_: '${common.tensorboard_logdir}', args: [touch, executed]}}}\n"
        "common: {cpu: true, tensorboard_logdir: subprocess.check_call}",
        "hydra.callbacks.one._target_: 'subprocess.check_call' is not called",
    ),
    "callback by resolver": (
        "hydra: {callbacks: {one: '${oc.create:{_target_:subprocess.check_call,args:[touch,executed]}}'}}",
        "hydra.callbacks.one._target_: 'subprocess.check_call' is not called",
    ),
    "factory of the log": (
        "hydra: {job_logging: {version: 1, handlers: {one: {'()': subprocess.check_call, args: [touch, executed]}}}}",
        "hydra.job_logging.handlers.one.(): 'subprocess.check_call' is not called",
    ),
    "class of the log": (
        "hydra: {hydra_logging: {version: 1, handlers: {one: {class: subprocess.Popen, args: [touch, executed]}}}}",
        "hydra.hydra_logging.handlers.one.class: 'subprocess.Popen' is not called",
    ),
    "factory of the log by a late reference": (
        "hydra: {sweeper: {params: {'()': os.system, command: touch executed}}, job_logging: {version: 1, "
        "root: {handlers: []}, handlers: {one: '${hydra:sweeper.params}'}}}",
        "hydra.*_logging.handlers.one.(): 'os.system' is not called",
    ),
    "what the log imports": (
        "hydra: {job_logging: {version: 1, handlers: {one: {class: logging.StreamHandler, stream: 'ext://antigravity'}}}}",
        "hydra.job_logging.handlers.one.stream: 'ext://antigravity' is not called",
    ),
    "a queue of the log": (
        "hydra: {job_logging: {version: 1, handlers: {one: {class: logging.handlers.QueueHandler, queue: os.abort}}}}",
        "hydra.job_logging.handlers.one.queue: 'os.abort' is not called",
    ),
    "a module of logging": (
        "hydra: {job_logging: {version: 1, handlers: {one: {'()': logging.os.system, command: touch executed}}}}",
        "hydra.job_logging.handlers.one.(): 'logging.os.system' is not called",
    ),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, where a command that is executed leaves a file."""
    monkeypatch.chdir(tmp_path)
    GlobalHydra.instance().clear()
    return tmp_path


def executed(here: Path) -> list[Path]:
    return list(here.rglob("executed*"))


def write(here: Path, name: str) -> str:
    """Write the recipe with what is hostile in it; returns words of the line that refuses it."""
    content, words = HOSTILE[name]
    recipe = RECIPE.replace("common: {cpu: true}\n", "") if "\ncommon:" in content else RECIPE
    (here / "run.yaml").write_text(f"{recipe}{content}\n", encoding="utf-8")
    return words


LATE = "factory of the log by a late reference"
"""Known when Hydra uses it: in ``hydra-train``, which ``run`` starts."""
FAST = ("tag", "callback", LATE)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in HOSTILE]
)
def test_hydra_train_executes_nothing(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words, run = write(here, name), processes.in_this_process(monkeypatch, capfd)
    with pytest.raises(SystemExit) as end:
        run("hydra-train", "--config-dir", str(here), "--config-name", "run")
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert end.value.code == 2
    assert words in line
    assert executed(here) == []


def test_run_executes_nothing(here: Path) -> None:
    for name in HOSTILE.keys() - {LATE}:
        words = write(here, name)
        GlobalHydra.instance().clear()
        with pytest.raises(UserError) as caught:
            read_configuration(here / "run.yaml", (), here, {})
        (problem,) = caught.value.problems
        assert problem.startswith((f"{here / 'run.yaml'}: ", "hydra.")), name
        assert words in problem, name
        assert executed(here) == [], name


def test_a_reference_to_the_environment_is_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE", "$(touch executed) `touch executed` ${oc.env:HOME}")
    (here / "run.yaml").write_text(RECIPE + "checkpoint: {save_dir: '${oc.env:HOSTILE}'}\n", encoding="utf-8")
    found = read_configuration(here / "run.yaml", (), here, {}).config
    assert "$(touch executed) `touch executed` " in str(found.checkpoint._get_node("save_dir")._value())
    assert executed(here) == []


def test_what_hydra_itself_names_is_called(here: Path) -> None:
    harmless = (
        "hydra: {callbacks: {one: {_target_: hydra.experimental.callbacks.LogJobReturnCallback}}, job_logging: "
        "{version: 1, handlers: {one: {class: logging.handlers.RotatingFileHandler, filename: log}}}}\n"
    )
    (here / "run.yaml").write_text(RECIPE + harmless, encoding="utf-8")
    assert read_configuration(here / "run.yaml", (), here, {}).config.model._name == "admin_transformer"
