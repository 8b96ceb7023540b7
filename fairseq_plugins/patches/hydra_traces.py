"""``fairseq-hydra-train`` reports a mistake of the user with Hydra's stack trace and exit code 1.

Hydra catches each error of a job and raises it again when the job's result is read, inside a handler that prints a
trace (``run_and_report`` of hydra 1.3); a ``SystemExit`` passes that handler.
https://github.com/facebookresearch/hydra/issues/3361
"""

from __future__ import annotations

from typing import Any

from hydra.core.utils import JobReturn

from fairseq_plugins.errors import UserError, report
from fairseq_plugins.process import users_mistake

STOCK_RESULT = vars(JobReturn)["return_value"]


def result_or_exit(job: JobReturn) -> Any:
    """``JobReturn.return_value`` of Hydra, where the job may have raised a mistake of the user."""
    raised = job._return_value
    mistake = users_mistake(raised) if isinstance(raised, Exception) else raised
    if isinstance(mistake, UserError):
        report(mistake)
        raise SystemExit(mistake.exit_code)
    return STOCK_RESULT.__get__(job)


def apply() -> None:
    """Replace the property that reads a job's result."""
    JobReturn.return_value = property(result_or_exit, STOCK_RESULT.__set__)  # type: ignore[assignment, method-assign]
