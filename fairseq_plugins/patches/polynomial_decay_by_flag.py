"""``--lr-scheduler polynomial_decay`` alone ends in "Error merging override lr_scheduler.total_num_update=null".

In YAML the length of the decay follows ``optimization.max_update``; by flag it did not, and now follows
``--max-update``. https://github.com/facebookresearch/fairseq/issues/4064
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq import options


def length_of_training(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch`` that fills an unset ``--total-num-update``; 0 means unset in YAML."""
    parsed = parse(*args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(namespace, "lr_scheduler", None) == "polynomial_decay" and namespace.total_num_update is None:
        # Commands that do not train have the flag of the schedule, but not --max-update.
        namespace.total_num_update = getattr(namespace, "max_update", 0)
    return parsed


WRAPPED = ((options, "parse_args_and_arch", length_of_training, 40),)
