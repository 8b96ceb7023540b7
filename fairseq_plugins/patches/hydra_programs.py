"""Hydra runs what a YAML file names: a callback, or a handler of its log, can be any function of any module.

The classes of ``logging`` are enough: a file of any name, such as a shell's start-up file, gets text of any form. Here
a log is one of Hydra's own files, and a callback Hydra's own. They are compared as they are written, before a reference
has a value. Variables of the environment tell other programs what to run, so they are refused, too.
Hydra checks its launchers and sweepers itself. https://github.com/facebookresearch/hydra/issues/3259
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from omegaconf import OmegaConf

from fairseq_plugins.errors import UserError

CALLBACKS = [{"_target_": f"hydra.experimental.callbacks.{kind}Callback"} for kind in ("LogJobReturn", "PickleJobInfo")]


def refuse_programs(load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``load_configuration``, which reads and composes all files; a UserError if something would be run, or written."""
    config, problems = load(*args, **kwargs), []
    written: Any = OmegaConf.to_container(config.hydra, resolve=False)
    for group in ("hydra_logging", "job_logging"):
        own = [path for path in files("hydra").joinpath("conf", "hydra", group).iterdir() if path.name[-5:] == ".yaml"]
        if written[group] not in (None, *(yaml.safe_load(path.read_text(encoding="utf-8")) for path in own)):
            names = ", ".join(sorted(path.name[:-5] for path in own))
            problems.append(f"hydra.{group} is refused; `override hydra/{group}` in defaults takes one of {names}")
    callbacks = written["callbacks"]
    if not isinstance(callbacks, dict) or any(callback not in CALLBACKS for callback in callbacks.values()):
        names = ", ".join(callback["_target_"] for callback in CALLBACKS)
        problems.append(f"hydra.callbacks is refused; legal: {names}, without arguments")
    if written["job"]["env_set"]:
        problems.append("hydra.job.env_set and env_copy are refused; set variables before the command")
    if problems:
        raise UserError(problems)
    return config


def refuse_package(append: Callable[..., None], self: Any, provider: str, path: str, *args: Any, **kwargs: Any) -> None:
    """Add a place of YAML files, or raise a UserError where a file or an option names a package, which is imported."""
    if provider.startswith("hydra.searchpath") and not path.startswith("file://") and "://" in path:
        raise UserError(f"hydra.searchpath: '{path}' is refused; legal: directories, as file:///DIR")
    append(self, provider, path, *args, **kwargs)


WRAPPED = ((ConfigLoaderImpl, "load_configuration", refuse_programs), (ConfigSearchPathImpl, "append", refuse_package))
"""Through which ``hydra-train`` and :func:`hydra.compose` read a configuration, and where its files are."""
