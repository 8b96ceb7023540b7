"""``--lr-scheduler polynomial_decay`` alone ends in "Error merging override lr_scheduler.total_num_update=null".

In YAML the length of the decay follows ``optimization.max_update``; by flag it did not, and now follows
``--max-update``. Without both, stock ends in a bare assertion; now a message says which flag is missing.
https://github.com/facebookresearch/fairseq/issues/4064
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq import options
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import PolynomialDecayLRSchedule

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap


def require_length(updates: float) -> None:
    """Check ``updates``, the length of the decay.

    Raises:
        UserError: it is not above 0, which means "unset" in fairseq.
    """
    if not updates > 0:
        raise UserError(
            "--lr-scheduler polynomial_decay needs the number of updates over which it decays, above 0: use "
            "--max-update, or --total-num-update if the decay does not end with the training"
        )


def length_of_training(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch`` that fills an unset ``--total-num-update``.

    Raises:
        UserError: a training has no ``--max-update`` either.
    """
    parsed = parse(*args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(namespace, "lr_scheduler", None) != "polynomial_decay" or namespace.total_num_update is not None:
        return parsed
    # Commands that do not train have the flag of the schedule, but not --max-update.
    namespace.total_num_update = getattr(namespace, "max_update", 0)
    if hasattr(namespace, "max_update"):
        require_length(namespace.max_update)
    return parsed


def build_with_length(build: Callable[..., None], schedule: Any, cfg: Any, *args: Any, **kwargs: Any) -> None:
    """``PolynomialDecayLRSchedule.__init__``, which also sees YAML and an explicit ``--total-num-update 0``.

    Raises:
        UserError: the length is not above 0.
    """
    require_length(cfg.total_num_update)
    build(schedule, cfg, *args, **kwargs)


def apply() -> None:
    """Wrap the parser of every command except ``fairseq-hydra-train``, and the schedule itself."""
    wrap(options, "parse_args_and_arch", length_of_training, order=40)
    wrap(PolynomialDecayLRSchedule, "__init__", build_with_length)
