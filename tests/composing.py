"""fairseq's configuration of a command, made quickly: Hydra composes the parts that are chosen once a process.

Hydra takes longer to compose a configuration than a tiny model takes to train. Most of that is the same each time: what
a choice of task, model and optimizer brings. So that is kept, and only the values are set anew, by Hydra itself.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

from fairseq.dataclass import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

by_hydra_alone = utils.compose


@functools.cache
def _chosen(config_name: str, choices: tuple[str, ...]) -> DictConfig:
    return by_hydra_alone(config_name, overrides=list(choices), strict=False)


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
        OmegaConf.set_struct(config, True)  # as in Hydra, where a value has a name that the parts know
        ConfigLoaderImpl._apply_overrides_to_config(read, config)
    except Exception:
        return by_hydra_alone(config_name, overrides=overrides, strict=strict)
    OmegaConf.set_struct(config, strict)
    return config


def install() -> None:
    """Give ``compose`` to fairseq. What is registered with Hydra later counts at once."""
    store = ConfigStore.store

    @functools.wraps(store)
    def store_and_forget(self: ConfigStore, *args: Any, **kwargs: Any) -> None:
        _chosen.cache_clear()
        store(self, *args, **kwargs)

    ConfigStore.store = store_and_forget
    utils.compose = compose
