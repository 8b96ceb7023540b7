"""fairseq's own commands, with the user directory of this package already given."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from fairseq_plugins.errors import UserError, nearest, unknown_name
from fairseq_plugins.outcome import exit_code

USER_DIR = str(Path(__file__).resolve().parents[1])


HYDRA_CHATTER = r"\s*(hydra\.experimental|The version_base|In 'config'|'config' is validated|The strict flag)"
"""How the warnings begin that Hydra gives on every run about fairseq's way of calling it."""


def plain(name: str, module: str, argv: Sequence[str]) -> int:
    """Run a command of fairseq that builds no model; it needs the mends of this package, not the user directory."""
    with _command_line(name, argv), warnings.catch_warnings():
        warnings.filterwarnings("ignore", HYDRA_CHATTER, UserWarning)
        import_module(module).cli_main()
    return 0


def with_user_dir(name: str, module: str, argv: Sequence[str]) -> int:
    """Run a command of fairseq with ``--user-dir`` given.

    Raises:
        UserError: if ``argv`` names another user directory.
    """
    given, rest = take_option(argv, "--user-dir")
    _refuse_other_user_dir(given)
    return plain(name, module, ["--user-dir", USER_DIR, *rest])


def train(name: str, module: str, argv: Sequence[str]) -> int:
    """``fairseq-train``, which would answer a misspelt ``--arch`` with the list of all three hundred.

    Raises:
        UserError: if the architecture is missing or unknown; the nearest legal one is named.
    """
    if not {"-h", "--help"}.intersection(argv):
        _refuse_unknown_arch(take_option(argv, "--arch", "-a")[0])
    return with_user_dir(name, module, argv)


def validate(name: str, module: str, argv: Sequence[str]) -> int:
    """``fairseq-validate``, which alone has no default ``--task`` and fails with a KeyError where it is not given."""
    given = take_option(argv, "--task")[0]
    return with_user_dir(name, module, [*(["--task", "translation"] if given is None else []), *argv])


def hydra_train(name: str, module: str, argv: Sequence[str]) -> int:
    """``fairseq-hydra-train`` with the user directory in the config and relative paths that mean what they say.

    Raises:
        UserError: if there is no YAML file of the given name, for which fairseq would take its defaults in silence.
    """
    _refuse_unknown_config(argv)
    stock: Any = import_module(module)
    stock._hydra_main = _in_hydra(stock._hydra_main)
    return plain(name, module, argv)


def take_option(argv: Sequence[str], flag: str, short: Optional[str] = None) -> Tuple[Optional[str], List[str]]:
    """The last value of ``flag`` in ``argv`` (None if it is not there), and ``argv`` without the flag."""
    value: Optional[str] = None
    rest: List[str] = []
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
    """Put ``argv`` where fairseq's commands read it and argparse finds the name that it prints."""
    before = sys.argv
    sys.argv = [f"fairseq-deep {name}", *argv]
    try:
        yield
    finally:
        sys.argv = before


def _refuse_other_user_dir(given: Optional[str]) -> None:
    if given is not None and Path(given).resolve() != Path(USER_DIR):
        raise UserError(
            f"fairseq-deep gives fairseq its own user directory and cannot take '{given}' as well: "
            f"write `import fairseq_plugins` in {os.path.join(given, '__init__.py')} and use fairseq's command "
            f"(fairseq-train, ...) with --user-dir {given}"
        )


def _refuse_unknown_config(argv: Sequence[str]) -> None:
    name, directory = take_option(argv, "--config-name", "-cn")[0], take_option(argv, "--config-dir", "-cd")[0]
    if name is None or directory is None:
        return
    if not Path(directory).is_dir():
        raise UserError(f"--config-dir {directory}: no such directory")
    files = {str(path.relative_to(directory).with_suffix("")) for path in Path(directory).rglob("*.yaml")}
    if name.removesuffix(".yaml") not in files:
        raise UserError(unknown_name("--config-name", name, files))


def _refuse_unknown_arch(arch: Optional[str], setting: str = "--arch") -> None:
    from fairseq.models import ARCH_MODEL_REGISTRY

    if arch in ARCH_MODEL_REGISTRY:
        return
    hint = _why_not(arch or "") or nearest(arch or "", list(ARCH_MODEL_REGISTRY))
    problem = f"{setting} is missing" if arch is None else f"unknown {setting} '{arch}'{hint}"
    raise UserError(f"{problem}; legal: {_legal_archs()}, their sizes, and fairseq's own")


def _legal_archs() -> str:
    """The patterns of our architectures' names, and the methods that go into them."""
    from fairseq_plugins.core.families import MODELS
    from fairseq_plugins.core.method import METHODS

    patterns = " or ".join(f"METHOD{model.family.suffix}" for model in MODELS)
    return f"{patterns} with METHOD one of {', '.join(sorted(METHODS))}"


def _why_not(arch: str) -> str:
    """Why a method is no architecture of the family that ``arch`` names; empty if it names no such pair."""
    from fairseq_plugins.core.architectures import refusals
    from fairseq_plugins.core.families import MODELS
    from fairseq_plugins.core.method import METHODS

    for model in MODELS:
        name, suffix, _ = arch.partition(model.family.suffix)
        if suffix and name in METHODS and (reasons := refusals(model.config_class, METHODS[name])):
            return f" ({'; '.join(reasons)})"
    return ""


def _in_hydra(job: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap fairseq's ``job`` so that a mistake of the user ends the program: Hydra would print a trace, code 1."""

    @functools.wraps(job)
    def run(cfg: Any, **options: Any) -> Any:
        result: List[Any] = []
        code = exit_code(lambda: result.append(_run_job(job, cfg, options)))
        if code:
            raise SystemExit(code)
        return result[0]

    return run


def _run_job(job: Callable[..., Any], cfg: Any, options: Any) -> Any:
    from omegaconf import open_dict
    from omegaconf.errors import OmegaConfBaseException

    _return_to_working_directory()
    _refuse_other_user_dir(cfg.common.user_dir)
    _refuse_incomplete(cfg)
    with open_dict(cfg):
        cfg.common.user_dir = USER_DIR
    try:
        return job(cfg, **options)
    except OmegaConfBaseException as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        # A key or value that the config does not have; OmegaConf says so in several lines.
        raise UserError("; ".join(line.strip() for line in str(error).splitlines() if line.strip())) from error


def _refuse_incomplete(cfg: Any) -> None:
    from omegaconf import OmegaConf

    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise UserError([f"{key} is not given: write {key}=VALUE after the command" for key in missing])
    if OmegaConf.is_config(cfg.get("model")) and "_name" in cfg.model:
        _refuse_unknown_arch(cfg.model._name, "model._name")


def _return_to_working_directory() -> None:
    """Leave the new directory into which Hydra changes, where a relative ``task.data`` is not found.

    Not in a sweep, whose runs would resume from each other's checkpoints, nor where ``hydra.job.chdir=True`` asks for
    the change; Hydra keeps its own records in the new directory in any case.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from hydra.utils import get_original_cwd

    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN and not HydraConfig.get().job.chdir:
        os.chdir(get_original_cwd())
