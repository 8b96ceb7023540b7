"""The quick way to a configuration of fairseq gives what Hydra gives."""

import copy
from pathlib import Path

import pytest
from fairseq.dataclass import initialize, utils
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from tests import composing, toy


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick way for these tests, whichever the others take; what it replaces comes back afterwards."""
    for owner, name in ((ConfigStore, "store"), (utils, "compose"), (utils, "initialize"), (initialize, "hydra_init")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    composing.install()


def test_it_is_what_hydra_composes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arch = "admin_transformer"
    flags = ("--lr", "0.1,0.2", "--save-interval", "3", "--source-lang", "it's", "--admin-scale", "scalar", "--fp16")
    flags += ("--optimizer", "sgd", "--lr-scheduler", "fixed")
    quick = [toy.parse_training(tmp_path, tmp_path / "first", *flags, arch=arch)]
    with monkeypatch.context() as without_hydra:
        without_hydra.setattr(composing, "_by_hydra", lambda *given: pytest.fail("not the quick way"))
        quick.append(toy.parse_training(tmp_path, tmp_path / "second", *flags, arch=arch))
    monkeypatch.setattr(utils, "compose", composing.compose_by_hydra)
    monkeypatch.setattr(utils, "initialize", composing.initialize_by_hydra)
    for config, name in zip(quick, ("first", "second"), strict=True):
        slow = toy.parse_training(tmp_path, tmp_path / name, *flags, arch=arch)
        assert OmegaConf.to_container(config, enum_to_str=False) == OmegaConf.to_container(slow, enum_to_str=False)
        assert list(config) == list(slow)
        assert config.checkpoint.save_dir == str(tmp_path / name)
    assert quick[0] != quick[1]


def test_what_is_registered_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ConfigStore.instance()
    monkeypatch.setattr(store, "repo", copy.deepcopy(store.repo))
    with initialize_config_dir(str(composing.CONFIG)):
        values = []
        for seed in (5, 6):
            store.store(name="newest", group="task", node={"_name": "newest", "seed": seed})
            values.append(utils.compose("config", overrides=["task=newest"], strict=False).task.seed)
    assert values == [5, 6]
