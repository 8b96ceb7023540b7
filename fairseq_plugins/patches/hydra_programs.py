"""Hydra runs what a YAML file names: a callback, or a handler of its log, can be any function of any module.

Here such a name has to be a class of ``logging``, or a callback of Hydra's own. Hydra checks its launchers and sweepers
itself. https://github.com/facebookresearch/hydra/issues/3259
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap

GROUPS = ("callbacks", "hydra_logging", "job_logging")
NAMING = ("_target_", "()", "class")
"""Keys whose value is called, in callbacks and in the settings of a log."""
# One capital word at the end: logging.os.system is a function, too.
HARMLESS = re.compile(r"logging\.(handlers\.)?[A-Z]\w*|colorlog\.ColoredFormatter|hydra\.experimental\.callbacks\.\w+")


def named(node: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and name of everything below ``node`` that would be called."""
    keys = node.keys() if OmegaConf.is_dict(node) else range(len(node)) if OmegaConf.is_list(node) else ()
    for key in keys:
        here = f"{place}.{key}"
        try:
            value = node[key]
        except OmegaConfBaseException:
            # A reference to what Hydra knows later, such as the directory of the output.
            value = str(node._get_node(key)._value())
        if key in NAMING and isinstance(value, str):
            yield here, value
        yield from named(value, here)


def refuse_programs(load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``load_configuration``, which reads and composes all files, with a check before anything is called.

    Raises:
        UserError: a function would be called that is neither Hydra's nor of ``logging``.
    """
    config = load(*args, **kwargs)
    found = [each for group in GROUPS for each in named(config.hydra.get(group), f"hydra.{group}")]
    legal = "legal are classes of logging and of hydra.experimental.callbacks"
    if problems := [
        f"{place}: '{name}' is not called; {legal}" for place, name in found if not HARMLESS.fullmatch(name)
    ]:
        raise UserError(problems)
    return config


def apply() -> None:
    """Wrap the method through which ``hydra-train`` and :func:`hydra.compose` read a configuration."""
    wrap(ConfigLoaderImpl, "load_configuration", refuse_programs)
