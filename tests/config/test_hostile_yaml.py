"""YAML files that try to run something: nothing is executed, and one line says what is refused."""

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
ENDLESS = "nested too deeply, or larger than it seems: "
HOSTILE = {
    "dataset: {max_tokens: !!python/object/apply:os.system [touch executed]}": f"{TAG}apply:os.system'",
    "dataset: {max_tokens: !!python/object/new:os.open [executed, 64]}": f"{TAG}new:os.open'",
    "x: &one {user_dir: *one}": ENDLESS,
    f"x: {'[' * 20_000}{']' * 20_000}": ENDLESS,
    "".join(f"x{number}: &x{number} [{f'*x{number - 1}, ' * 2}]\n" for number in range(1, 40)): ENDLESS,
}
"""Hostile content of a file, behind ``x0: &x0 [1]``, and words of the line that refuses it."""


def write(here: Path, content: str) -> Path:
    """Write the recipe with ``content`` in it."""
    GlobalHydra.instance().clear()
    path = here / "run.yaml"
    common = "common: {cpu: true, tensorboard_logdir: subprocess.check_call}\n"
    path.write_text(f"{common}{RECIPE}{content}\n", encoding="utf-8")
    return path


def test_nothing_is_executed_nor_read_for_ever(here, monkeypatch, capfd):
    """Both ``run`` and ``hydra-train`` refuse the file."""
    run = processes.in_this_process(monkeypatch, capfd)
    for content, words in HOSTILE.items():
        path = write(here, f"x0: &x0 [1]\n{content}")
        ended = run("hydra-train", "--config-dir", str(here), "--config-name", "run")
        assert ended.code == 2
        for problem in (refused(read_configuration, path, (), here, {}), ended.error.removeprefix("error: ")):
            assert problem.startswith(f"{path}: "), content
            assert words in problem, content
        assert list(here.rglob("executed*")) == [], content


def test_a_reference_to_the_environment_is_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE", "$(touch executed) `touch executed` ${oc.env:HOME}")
    path = write(here, "checkpoint: {save_dir: '${oc.env:HOSTILE}'}")
    directory = read_configuration(path, (), here, {}).config.checkpoint._get_node("save_dir")
    assert "$(touch executed) `touch executed` " in str(directory._value())
    assert list(here.rglob("executed*")) == []
