"""Hydra runs what a YAML file names: a callback, or a handler of its log, can be any function of any module.

The classes of ``logging`` are enough: a file of any name, such as a shell's start-up file, gets text of any form. Here
only Hydra's callbacks can be named, and what Hydra's own logs name, with their file. Variables of the environment tell
other programs what to run, so they are refused. All is checked when the files are read, for a message before anything
starts. It is checked again when Hydra uses it, because a reference may have another value by then.
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
LOG = re.compile(r"(\$\{hydra\.runtime\.output_dir\}/|hydra-)\$\{hydra\.job\.name\}\.log")
"""The files of Hydra's own configurations."""
OF_LOGS = re.compile(r"logging\.(StreamHandler|FileHandler|NullHandler|Formatter|Filter)|colorlog\.ColoredFormatter")
OF_CALLBACKS = re.compile(r"hydra\.experimental\.callbacks\.\w+")


def named(node: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and value of everything below ``node`` that would be called, opened or changed by its name."""
    keys = node.keys() if OmegaConf.is_dict(node) else range(len(node)) if OmegaConf.is_list(node) else ()
    for key in keys:
        here = f"{place}.{key}"
        written = str(node._get_node(key)._value())
        try:
            value = node[key]
        except OmegaConfBaseException:
            # A reference to what Hydra knows later, such as the directory of the output.
            value = written
        if key in ("filename", "."):
            yield here, written
        elif isinstance(value, str) and (key in NAMING or (value.startswith(IMPORTED) and value not in STREAMS)):
            yield here, value
        yield from named(value, here)


def require_harmless(node: Any, place: str) -> None:
    """Check what :func:`named` finds.

    Raises:
        UserError: something is neither Hydra's nor what Hydra's own files use.
    """
    kinds = {"filename": LOG, "_target_": OF_CALLBACKS}
    legal = (
        "legal is what Hydra's own logs name, colorlog.ColoredFormatter, and callbacks of hydra.experimental.callbacks"
    )
    found = [(here, name, kinds.get(here.rpartition(".")[2], OF_LOGS)) for here, name in named(node, place)]
    if refused := [f"{here}: '{name}' is refused; {legal}" for here, name, kind in found if not kind.fullmatch(name)]:
        raise UserError(refused)


def refuse_programs(load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``load_configuration``, which reads and composes all files, with a check before anything is called."""
    config = load(*args, **kwargs)
    for group in GROUPS:
        require_harmless(config.hydra.get(group), f"hydra.{group}")
    if config.hydra.job._get_node("env_set")._value():
        raise UserError("hydra.job.env_set and env_copy are refused; set variables before the command")
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
