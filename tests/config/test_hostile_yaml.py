"""YAML files that try to run something: nothing is executed, and one line says what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from fairseq_plugins.tools.pipeline.configuration import read_configuration
from tests import processes
from tests.refusals import refused

RECIPE = """
task: {_name: translation, data: nowhere, source_lang: de, target_lang: en}
model: {_name: admin_transformer}
criterion: {_name: label_smoothed_cross_entropy}
optimizer: {_name: adam}
lr_scheduler: {_name: inverse_sqrt}
"""
TAG = "could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/"
LOG = "hydra.job_logging is refused; `override hydra/job_logging` in defaults takes one of default, "
CALLBACK = "hydra.callbacks is refused; legal: hydra.experimental.callbacks.LogJobReturnCallback, "
HOSTILE = [
    ("dataset: {max_tokens: !!python/object/apply:os.system [touch executed]}", f"{TAG}apply:os.system'"),
    ("dataset: {max_tokens: !!python/object/new:os.open [executed, 64]}", f"{TAG}new:os.open'"),
    (
        # Known when Hydra uses it: in ``hydra-train``, which ``run`` starts.
        "hydra: {sweeper: {params: {'()': os.system, command: touch executed}}, job_logging: {version: 1, "
        "root: {handlers: []}, handlers: {one: '${hydra:sweeper.params}'}}}",
        LOG,
    ),
    ("hydra: {searchpath: ['pkg://executing']}", "hydra.searchpath: 'pkg://executing' is refused; legal: directories"),
    ("hydra: {job: {env_set: {LD_PRELOAD: executed}}}", "hydra.job.env_set and env_copy are refused"),
]
HOSTILE += [
    (f"hydra: {{callbacks: {{one: {one}}}}}", CALLBACK)
    for one in (
        "{_target_: subprocess.check_call, args: [touch, executed]}",
        "{_target_: '${common.tensorboard_logdir}', args: [touch, executed]}",
        "'${oc.create:{_target_:subprocess.check_call,args:[touch,executed]}}'",
        "{_target_: logging.FileHandler, _args_: [executed]}",
        "{_target_: hydra.experimental.callbacks.LogJobReturnCallback, a: {_target_: os.system, command: touch exec}}",
    )
]
HOSTILE += [
    (f"hydra: {{job_logging: {{version: 1, handlers: {{one: {{{handler}}}}}}}}}", LOG)
    for handler in (
        "'()': subprocess.check_call, args: [touch, executed]",
        "'()': logging.os.system, command: touch executed",
        "class: subprocess.Popen, args: [touch, executed]",
        "class: logging.StreamHandler, stream: 'ext://antigravity'",
        "class: logging.FileHandler, filename: executed",
        "class: logging.FileHandler, filename: log, delay: true, '.': {baseFilename: executed}",
        "class: logging.handlers.SocketHandler, host: localhost, port: 1",
    )
]
"""What is hostile in a file, and words of the line that refuses it."""


def write(here: Path, content: str) -> Path:
    """Write the recipe with ``content`` in it."""
    GlobalHydra.instance().clear()
    path = here / "run.yaml"
    (here / "executing.py").write_text("open('executed', 'w')")
    common = "common: {cpu: true, tensorboard_logdir: subprocess.check_call}\n"
    path.write_text(f"{common}{RECIPE}{content}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "cases",
    [[*HOSTILE[:4:2], HOSTILE[5]], pytest.param([*HOSTILE[1:5:2], HOSTILE[4], *HOSTILE[6:]], marks=pytest.mark.slow)],
    ids=["of each kind", "others"],
)
def test_hydra_train_executes_nothing(
    cases: list[tuple[str, str]], here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = processes.in_this_process(monkeypatch, capfd)
    monkeypatch.syspath_prepend(here)
    for content, words in cases:
        write(here, content)
        ended = run("hydra-train", "--config-dir", str(here), "--config-name", "run")
        assert ended.code == 2
        assert words in ended.error
        assert list(here.rglob("executed*")) == [], content


def test_run_executes_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    for content, words in HOSTILE:
        path = write(here, content)
        problem = refused(read_configuration, path, (), here, {})
        assert problem.startswith((f"{path}: ", "hydra.")), content
        assert words in problem, content
        assert list(here.rglob("executed*")) == [], content


@pytest.mark.parametrize(
    "content",
    [
        "common: &one {user_dir: *one}",
        f"common: {'[' * 20_000}{']' * 20_000}",
        "".join(f"x{number}: &x{number} [*x{number - 1}, *x{number - 1}]\n" for number in range(1, 40)),
    ],
    ids=["contains itself", "deep", "doubled"],
)
def test_a_file_without_an_end_is_one_line(
    content: str, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(here, f"x0: &x0 [1]\n{content}".replace("common:", "x:"))
    line = f"{path}: nested too deeply, or larger than it seems: "
    assert refused(read_configuration, path, (), here, {}).startswith(line)
    run = processes.in_this_process(monkeypatch, capfd)
    ended = run("hydra-train", "--config-dir", str(here), "--config-name", "run")
    assert (ended.code, ended.error[: len(line) + 7]) == (2, f"error: {line}")


def test_a_reference_to_the_environment_is_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE", "$(touch executed) `touch executed` ${oc.env:HOME}")
    path = write(here, "checkpoint: {save_dir: '${oc.env:HOSTILE}'}")
    directory = read_configuration(path, (), here, {}).config.checkpoint._get_node("save_dir")
    assert "$(touch executed) `touch executed` " in str(directory._value())
    assert list(here.rglob("executed*")) == []


def test_what_hydra_itself_names_is_called(here: Path) -> None:
    callback = "hydra: {callbacks: {one: {_target_: hydra.experimental.callbacks.LogJobReturnCallback}}}"
    for kind in ("default", "disabled", "none", "stdout"):
        content = f"{callback}\ndefaults: [override hydra/job_logging: {kind}, _self_]"
        config = read_configuration(write(here, content), (), here, {}).config
        assert config.model._name == "admin_transformer"
