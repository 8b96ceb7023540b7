"""Hydra runs what a YAML file names: a callback, or a handler of its log, can be any function of any module.

Here such a name has to be a class of ``logging``, or a callback of Hydra's own. It is checked when the files are read,
for a message before anything starts, and again when Hydra uses it, because a reference may have another value by then.
Hydra checks its launchers and sweepers itself. https://github.com/facebookresearch/hydra/issues/3259
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.errors import UserError

GROUPS = ("callbacks", "hydra_logging", "job_logging")
NAMING = ("_target_", "()", "class", "queue", "listener")
"""Keys whose value is called, in callbacks and in the settings of a log; the last two since Python 3.12."""
IMPORTED = "ext://"
"""Begins a value that :mod:`logging.config` imports."""
STREAMS = tuple(f"{IMPORTED}sys.{name}" for name in ("stdin", "stdout", "stderr"))
CONFIGURES = ("hydra.core.utils", "hydra.main", "hydra._internal.hydra", "hydra._internal.core_plugins.basic_launcher")
"""Every module of Hydra that sets up a log, by a function of that name."""
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
        if isinstance(value, str) and (key in NAMING or (value.startswith(IMPORTED) and value not in STREAMS)):
            yield here, value
        yield from named(value, here)


def require_harmless(node: Any, place: str) -> None:
    """Check what :func:`named` finds.

    Raises:
        UserError: a function would be called that is neither Hydra's nor of ``logging``.
    """
    legal = "legal are classes of logging and of hydra.experimental.callbacks"
    called = [(here, name) for here, name in named(node, place) if not HARMLESS.fullmatch(name)]
    if called:
        raise UserError([f"{here}: '{name}' is not called; {legal}" for here, name in called])


def refuse_programs(load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``load_configuration``, which reads and composes all files, with a check before anything is called."""
    config = load(*args, **kwargs)
    for group in GROUPS:
        require_harmless(config.hydra.get(group), f"hydra.{group}")
    return config


def refuse_in_log(configure: Callable[..., Any], log_config: Any, *args: Any, **kwargs: Any) -> Any:
    """``configure_log``, with a check."""
    require_harmless(log_config, "hydra.*_logging")
    return configure(log_config, *args, **kwargs)


def refuse_callbacks(make: Callable[..., Any], self: Any, config: Any = None) -> Any:
    """``Callbacks.__init__``, with a check."""
    if config is not None:
        require_harmless(OmegaConf.select(config, "hydra.callbacks"), "hydra.callbacks")
    return make(self, config)


WRAPPED = (
    (ConfigLoaderImpl, "load_configuration", refuse_programs),
    (Callbacks, "__init__", refuse_callbacks),
    *((import_module(name), "configure_log", refuse_in_log) for name in CONFIGURES),
)
"""The method through which ``hydra-train`` and :func:`hydra.compose` read a configuration, and its uses."""
