"""``fairseq-hydra-train`` reports a mistake of the user with Hydra's stack trace and exit code 1.

Hydra catches whatever a job raises and raises it again when the job's result is read, inside a handler that prints a
trace (``run_and_report`` of hydra 1.3); a ``SystemExit`` passes that handler. Problems of a YAML file or an override
are also printed there, in several lines. How Hydra shows errors is discussed in
https://github.com/facebookresearch/hydra/issues/3361.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

from hydra._internal import utils as hydra_utils
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError

from fairseq_plugins.errors import UserError, nearest, report

SCALAR_FOR_LIST = re.compile(r"Error merging override ([\w.]+)=([^\[;]+);.* is not a ListConfig")


def report_and_exit(mistake: UserError) -> NoReturn:
    """End the program in one line; a ``SystemExit`` passes Hydra's handler."""
    report(mistake)
    raise SystemExit(mistake.exit_code)


def result_or_exit(job: JobReturn) -> Any:
    """``JobReturn.return_value`` of Hydra, where the job may have raised a mistake of the user."""
    if isinstance(job._return_value, UserError):
        report_and_exit(job._return_value)
    return STOCK_RESULT.__get__(job)


def configuration_error(error: BaseException) -> UserError | None:
    """Return the problem of a YAML file or an override in one line; None if ``error`` is something else.

    With ``HYDRA_FULL_ERROR=1`` Hydra's users ask for the trace, and get it.
    """
    if isinstance(error, UserError):
        return error
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        return None
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return UserError(f"{error.problem_mark.name}: line {error.problem_mark.line + 1}: {error.problem}")
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(cause, (ConfigKeyError, ConfigAttributeError)) and cause.full_key:
        return UserError(_unknown_key(cause))
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return None
    texts = [str(error)] + ([str(cause)] if isinstance(cause, OmegaConfBaseException) else [])
    lines = [line.strip() for text in texts for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("object_type=", "reference_type="))]
    text = "; ".join(dict.fromkeys(said))
    if scalar := SCALAR_FOR_LIST.search(text):
        text = f"{scalar[1]} is a list of values: give {scalar[1]}=[{scalar[2]}]"
    return UserError(text)


def _unknown_key(error: OmegaConfBaseException) -> str:
    """Return the message for an unknown setting: the nearest one, and how to add one that the file leaves out."""
    parent, key = error.object_type, str(error.key)
    if is_dataclass(parent):
        legal, hint = [field.name for field in fields(parent)], ""
    else:
        legal = [str(name) for name in error.parent_node] if OmegaConf.is_dict(error.parent_node) else []
        hint = f"; +{error.full_key}=VALUE adds one that the YAML file leaves out"
    return f"unknown setting '{error.full_key}'{nearest(key, legal)}{hint}"


def report_in_one_line(run_and_report: Callable[..., Any], function: Callable[[], Any]) -> Any:
    """``run_and_report`` that leaves configuration errors to this package."""

    def told() -> Any:
        try:
            return function()
        except Exception as error:
            if mistake := configuration_error(error):
                report_and_exit(mistake)
            raise

    return run_and_report(told)


STOCK_RESULT = vars(JobReturn)["return_value"]


WRAPPED = ((hydra_utils, "run_and_report", report_in_one_line),)


def apply() -> None:
    """Replace Hydra's property."""
    JobReturn.return_value = property(result_or_exit, STOCK_RESULT.__set__)  # type: ignore[assignment, method-assign]
