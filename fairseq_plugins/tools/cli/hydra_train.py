"""``fairseq-hydra-train`` with the user directory of this package, paths that work, and one line for each mistake.

Hydra prints a trace, or several lines, and ends with exit code 1; how it shows errors is discussed in
https://github.com/facebookresearch/hydra/issues/3361.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from fairseq_cli import hydra_train
from hydra._internal import utils as hydra_utils
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import get_original_cwd
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.lines import read_lines
from fairseq_plugins.options import make_one_line
from fairseq_plugins.tools.cli.stock import plain
from fairseq_plugins.tools.pipeline.checkout import USER_DIR, refuse_other_user_dir
from fairseq_plugins.tools.pipeline.configuration import (
    GROUPS_BY_NAME,
    one_line,
    refuse_file,
    unknown_choices,
    unknown_key,
)
from fairseq_plugins.wrapping import replaced


def main(argv: Sequence[str]) -> int:
    """Run ``fairseq-hydra-train``; a UserError if the YAML file is missing, where fairseq would use its defaults."""
    # fairseq reads Hydra's own options in a way that hides a misspelt one.
    parser = hydra_utils.get_args_parser()
    parser.prog = "fairseq-deep hydra-train"
    make_one_line(parser)
    given = parser.parse_args(list(argv))
    _refuse_unreadable(given.config_name, given.config_dir, given.config_path)
    job = replaced(hydra_train, _hydra_main=partial(run_job, hydra_train._hydra_main))
    # Errors are reported at the end of every command.
    with job, replaced(hydra_utils, run_and_report=lambda function: function()):
        try:
            return plain("hydra-train", hydra_train, argv)
        except Exception as error:
            raise configuration_error(error) or error from error.__cause__


def _refuse_unreadable(name: str | None, directory: str | None, package: str | None) -> None:
    if not (directory or package) and name not in (None, "config"):
        raise UserError(f"--config-name {name} needs --config-dir, the directory of its file")
    if name is None or directory is None:
        return
    if not Path(directory).is_dir():
        raise UserError(f"--config-dir {directory}: no such directory")
    files = {str(path.relative_to(directory).with_suffix("")): path for path in Path(directory).rglob("*.yaml")}
    stem = name.removesuffix(".yaml")
    if stem not in files:
        raise UserError(unknown_name("--config-name", name, files))
    for _ in read_lines(files[stem]):  # it is UTF-8
        pass
    refuse_file(files[stem], stem, f"--config-name {name}")


def run_job(job: Callable[..., Any], cfg: Any, **options: Any) -> Any:
    """Run fairseq's ``job`` in the user's directory and with the user directory of this package.

    A UserError for missing values, groups that fairseq does not have, and parts of a training that are not registered.
    """
    # Hydra enters a new directory, where a relative `task.data` is not found. Not in a sweep, whose runs would resume
    # from each other's checkpoints, nor if hydra.job.chdir=True asks for the change.
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN and not HydraConfig.get().job.chdir:
        os.chdir(get_original_cwd())
    refuse_other_user_dir(cfg.common.user_dir)
    if missing := sorted(OmegaConf.missing_keys(cfg).difference(GROUPS_BY_NAME)):
        raise UserError([f"{key} is missing: add {key}=VALUE to the command" for key in missing])
    for group in cfg:
        if group not in FairseqConfig.__dataclass_fields__:
            raise UserError(unknown_name("group of settings", group, FairseqConfig.__dataclass_fields__))
    if problems := list(unknown_choices(cfg)):
        raise UserError(problems)
    with open_dict(cfg):
        cfg.common.user_dir = USER_DIR
    return job(cfg, **options)


def configuration_error(error: Exception) -> UserError | None:
    """Return the problem of a YAML file or an override in one line; None if ``error`` is something else.

    With ``HYDRA_FULL_ERROR=1`` Hydra's users ask for the trace, and get it.
    """
    if isinstance(error, UserError):
        return error
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        return None
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return UserError(f"{error.problem_mark.name}: line {error.problem_mark.line + 1}: {error.problem}")
    known = isinstance(error, (HydraException, OmegaConfBaseException)) or unknown_key(error)
    return UserError(one_line(error)) if known else None
