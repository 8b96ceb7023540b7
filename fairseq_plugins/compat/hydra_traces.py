"""``fairseq-hydra-train`` answers a mistake of the user with Hydra's stack trace and exit code 1.

Hydra catches whatever a job raises and raises it again where the job's result is asked for, inside a handler that
prints a trace (``run_and_report`` of hydra 1.3); a ``SystemExit`` passes that handler. How Hydra shows errors is
discussed in https://github.com/facebookresearch/hydra/issues/3361.
"""

from __future__ import annotations

from typing import Any

from hydra.core.utils import JobReturn

from fairseq_plugins.errors import UserError, report


class _ResultOrExit:
    """The property ``JobReturn.return_value`` that ends the program, in one line, where the job raised UserError."""

    def __init__(self, stock: property) -> None:
        self.stock = stock

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if isinstance(instance._return_value, UserError):
            report(instance._return_value)
            raise SystemExit(instance._return_value.exit_code)
        return self.stock.__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        self.stock.__set__(instance, value)


def apply() -> None:
    """Put the property in the place of Hydra's."""
    name = "return_value"
    stock = JobReturn.__dict__[name]
    if not isinstance(stock, _ResultOrExit):
        setattr(JobReturn, name, _ResultOrExit(stock))
