"""fairseq's own commands, with the user directory of this package already set."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fairseq_plugins.cli.short_log import short_log
from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.lines import read_lines
from fairseq_plugins.process import exit_code

USER_DIR = str(Path(__file__).resolve().parents[1])


CHATTER = (
    r"\s*(hydra\.experimental|The version_base|In 'config'|'.+' is validated|The strict flag|"
    r"'pin_memory' argument|`torch\.cuda\.amp\.autocast|Support for mismatched)"
)
"""Beginnings of the warnings that Hydra and torch print on every run about fairseq's calls."""


def plain(name: str, module: str, argv: Sequence[str]) -> int:
    """Run a command of fairseq that builds no model; it needs the patches of this package, not the user directory."""
    with _command_line(name, argv):
        import_module(module).cli_main()
    return 0


def with_user_dir(name: str, module: str, argv: Sequence[str]) -> int:
    """Run a command of fairseq with ``--user-dir`` set.

    Raises:
        UserError: if ``argv`` names another user directory.
    """
    given, rest = take_option(argv, "--user-dir")
    _refuse_other_user_dir(given)
    return plain(name, module, ["--user-dir", USER_DIR, *rest])


def train(name: str, module: str, argv: Sequence[str]) -> int:
    """Run ``fairseq-train`` with a log that begins with a few lines instead of hundreds."""
    with short_log():
        return with_user_dir(name, module, argv)


def validate(name: str, module: str, argv: Sequence[str]) -> int:
    """Run ``fairseq-validate``, the only one without a default ``--task``, which fails with a KeyError without it."""
    given = take_option(argv, "--task")[0]
    return with_user_dir(name, module, [*(["--task", "translation"] if given is None else []), *argv])


def hydra_train(name: str, module: str, argv: Sequence[str]) -> int:
    """Run ``fairseq-hydra-train`` with the user directory in the config and with relative paths that work.

    Raises:
        UserError: there is no YAML file of that name; fairseq would silently use its defaults.
    """
    from hydra._internal.utils import get_args_parser

    from fairseq_plugins.patches.misspelt_options import make_one_line

    # fairseq reads Hydra's own options in a way that hides a misspelt one.
    parser = get_args_parser()
    parser.prog = f"fairseq-deep {name}"
    make_one_line(parser)
    given = parser.parse_args(list(argv))
    _refuse_unreadable_config(given.config_name, given.config_dir)
    with _command_line(name, argv):
        stock: Any = import_module(module)
    job = stock._hydra_main
    stock._hydra_main = _in_hydra(job)
    try:
        return plain(name, module, argv)
    finally:
        stock._hydra_main = job


def take_option(argv: Sequence[str], flag: str, short: str | None = None) -> tuple[str | None, list[str]]:
    """Return the last value of ``flag`` in ``argv`` (None if absent), and ``argv`` without the flag."""
    value: str | None = None
    rest: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if argument in (flag, short):
            value = next(arguments, None)
        elif argument.startswith(f"{flag}="):
            value = argument[len(flag) + 1 :]
        else:
            rest.append(argument)
    return value, rest


@contextmanager
def _command_line(name: str, argv: Sequence[str]) -> Iterator[None]:
    """Set ``sys.argv``, where fairseq's commands read it and argparse finds the name that it prints; no chatter."""
    before = sys.argv
    sys.argv = [f"fairseq-deep {name}", *argv]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", CHATTER)
            yield
    finally:
        sys.argv = before


def _refuse_other_user_dir(given: str | None) -> None:
    if given is not None and Path(given).resolve() != Path(USER_DIR):
        raise UserError(
            f"fairseq-deep gives fairseq its own user directory and cannot take '{given}' as well: "
            f"write `import fairseq_plugins` in {os.path.join(given, '__init__.py')} and use fairseq's command "
            f"(fairseq-train, ...) with --user-dir {given}"
        )


def _refuse_unreadable_config(name: str | None, directory: str | None) -> None:
    if name is None or directory is None:
        return
    if not Path(directory).is_dir():
        raise UserError(f"--config-dir {directory}: no such directory")
    files = {str(path.relative_to(directory).with_suffix("")): path for path in Path(directory).rglob("*.yaml")}
    stem = name.removesuffix(".yaml")
    if stem not in files:
        raise UserError(unknown_name("--config-name", name, files))
    from fairseq.dataclass.configs import FairseqConfig

    if stem in FairseqConfig.__dataclass_fields__:
        raise UserError(f"--config-name {name}: this is the name of a group of fairseq's settings; rename the file")
    for _ in read_lines(files[stem]):  # it is UTF-8
        pass


def _in_hydra(job: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap fairseq's ``job`` so that a mistake of the user ends the program: Hydra would print a trace, code 1."""

    @functools.wraps(job)
    def run(cfg: Any, **options: Any) -> Any:
        result: list[Any] = []
        code = exit_code(lambda: result.append(_run_job(job, cfg, options)))
        if code:
            raise SystemExit(code)
        return result[0]

    return run


def _run_job(job: Callable[..., Any], cfg: Any, options: Any) -> Any:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from hydra.utils import get_original_cwd
    from omegaconf import open_dict

    from fairseq_plugins.patches.hydra_traces import configuration_error

    # Hydra enters a new directory, where a relative `task.data` is not found. Not in a sweep, whose runs would resume
    # from each other's checkpoints, nor if hydra.job.chdir=True asks for the change.
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN and not HydraConfig.get().job.chdir:
        os.chdir(get_original_cwd())
    _refuse_other_user_dir(cfg.common.user_dir)
    _refuse_incomplete(cfg)
    with open_dict(cfg):
        cfg.common.user_dir = USER_DIR
    try:
        return job(cfg, **options)
    except Exception as error:
        mistake = configuration_error(error)
        raise mistake or error from error.__cause__


def _refuse_incomplete(cfg: Any) -> None:
    """Refuse missing values, groups that fairseq does not have, and parts of a training that are not registered."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY
    from omegaconf import OmegaConf

    from fairseq_plugins.core.families import require_architecture

    if missing := sorted(OmegaConf.missing_keys(cfg)):
        raise UserError([f"{key} is missing: add {key}=VALUE to the command" for key in missing])
    for group in cfg:
        if group not in FairseqConfig.__dataclass_fields__:
            raise UserError(unknown_name("group of settings", group, FairseqConfig.__dataclass_fields__))
    if OmegaConf.is_config(cfg.get("model")) and "_name" in cfg.model:
        require_architecture(cfg.model._name, "model._name")
    registries = {"task": TASK_REGISTRY, **{name: registry["registry"] for name, registry in REGISTRIES.items()}}
    for group, registry in registries.items():
        chosen = cfg.get(group)
        name = chosen.get("_name") if OmegaConf.is_dict(chosen) else chosen
        if isinstance(name, str) and name not in registry:
            raise UserError(unknown_name(f"{group}._name", name, registry))
