"""fairseq's configuration of a command, made quickly: Hydra composes what all commands share once a process.

Hydra takes longer to compose a configuration than a tiny model takes to train. Most of that is the same each time, and
is kept; a choice of task, model or optimizer replaces a part of it, and the values are set by Hydra itself.
"""

import contextlib
import copy
import functools
from pathlib import Path
from typing import Any

import fairseq
from fairseq.dataclass import initialize, utils
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

CONFIG = Path(fairseq.__file__).parent / "config"
compose_by_hydra, initialize_by_hydra = utils.compose, utils.initialize


def _by_hydra(config_name: str, overrides: list[str], strict: bool | None) -> DictConfig:
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIG)):
        return compose_by_hydra(config_name, overrides=overrides, strict=strict)


@functools.cache
def _chosen(config_name: str, choices: tuple[str, ...]) -> DictConfig:
    parts = [choice.partition("=")[::2] for choice in choices]
    if not choices or any((CONFIG / group / f"{name}.yaml").exists() for group, name in parts):
        return _by_hydra(config_name, list(choices), strict=False)
    config = copy.deepcopy(_chosen(config_name, ()))
    for group, name in parts:
        config[group] = ConfigStore.instance().load(f"{group}/{name}.yaml").node
    return config


@functools.cache
def _read(override: str) -> Override:
    return OverridesParser.create().parse_overrides([override])[0]


def compose(config_name: str, overrides: list[str], strict: bool | None = None) -> DictConfig:
    """The result of Hydra's ``compose``; errors come from Hydra itself."""
    # A value stands below a part, as task.data does; a choice of a part has no dot.
    values = [override for override in overrides if "." in override.partition("=")[0]]
    choices = tuple(override for override in overrides if override not in values)
    try:
        read = [_read(value) for value in values]
        assert not any(value.is_sweep_override() for value in read)
        config = copy.deepcopy(_chosen(config_name, choices))
        OmegaConf.set_struct(config, True)  # Hydra refuses a name that the parts do not know
        ConfigLoaderImpl._apply_overrides_to_config(read, config)
    except Exception:
        return _by_hydra(config_name, overrides, strict)
    OmegaConf.set_struct(config, strict)
    return config


def install() -> None:
    """Give ``compose`` to fairseq, and no search for a caller. What is registered with Hydra later counts at once."""
    store, stored = ConfigStore.store, dict[tuple[str | None, str], Any]()

    @functools.wraps(store)
    def store_and_forget(self: ConfigStore, name: str, node: Any, group: str | None = None, **kwargs: Any) -> None:
        # fairseq stores the same again for each configuration file, under the name of that file too.
        if (group or name == "config") and stored.get((group, name)) is not node:
            _chosen.cache_clear()
        stored[group, name] = node
        store(self, name, node, group, **kwargs)

    ConfigStore.store = store_and_forget
    utils.compose = compose
    # Called for each YAML file, it stores the same again.
    initialize.hydra_init = functools.cache(initialize.hydra_init)
    utils.initialize = lambda config_path: contextlib.nullcontext()
