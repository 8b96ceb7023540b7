"""A number that makes no sense ends in a stack trace, or is used: with ``--lr -0.1`` the loss climbs.

Here flags and YAML files are checked before anything is loaded. Not reported upstream so far.
"""

from __future__ import annotations

import ast
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairseq import options
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from fairseq_plugins.errors import UserError, flag
from fairseq_plugins.patches.wrapping import wrap

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Legal:
    """The legal values of a setting, or of each number of a list: their description and a test.

    Args:
        words: description in a message.
        holds: the test.
        numbers: required length of a list; None for one number, or a list of any length except 0.
    """

    words: str
    holds: Callable[[float], bool]
    numbers: int | None = None

    def accepts(self, value: Any) -> bool:
        """Return whether ``value`` is legal; unset values are, and switches such as ``retain_dropout``."""
        if value is None or isinstance(value, bool):
            return True
        if isinstance(value, str):
            if value.startswith("${"):  # another setting
                return True
            try:
                value = ast.literal_eval(value)  # fairseq keeps some numbers as text
            except (ValueError, SyntaxError):
                return False
        several = isinstance(value, (list, tuple)) or OmegaConf.is_list(value)
        numbers = list(value) if several else [value]
        expected = self.numbers or (len(numbers) if numbers else 1)
        return len(numbers) == expected and all(
            isinstance(number, (int, float)) and self.holds(number) for number in numbers
        )


AT_LEAST_0 = Legal("at least 0", lambda value: 0 <= value < math.inf)
AT_LEAST_1 = Legal("at least 1", lambda value: 1 <= value < math.inf)
ABOVE_0 = Legal("above 0", lambda value: 0 < value < math.inf)
FINITE = Legal("a finite number", math.isfinite)
SHARE = Legal("at least 0 and below 1", lambda value: 0 <= value < 1)
SEED = Legal("from 0 to 4294967295, as numpy requires", lambda value: 0 <= value < 2**32)
WHOLE_NUMBERS = (
    "max_tokens max_tokens_valid batch_size batch_size_valid required_batch_size_multiple update_freq beam nbest"
)

LEGAL: Mapping[str, Legal] = {
    **dict.fromkeys(
        "max_tokens max_tokens_valid batch_size batch_size_valid update_freq beam nbest".split(), AT_LEAST_1
    ),
    "required_batch_size_multiple": AT_LEAST_1,
    **dict.fromkeys("num_workers max_epoch max_update lr clip_norm weight_decay warmup_updates".split(), AT_LEAST_0),
    **dict.fromkeys(["lenpen", "unkpen"], FINITE),
    "seed": SEED,
    "label_smoothing": SHARE,
    "temperature": ABOVE_0,
    "warmup_init_lr": Legal("at least 0, or -1 for the default of the schedule", lambda v: v == -1 or v >= 0),
    "adam_betas": Legal("two numbers in brackets, each at least 0 and below 1", SHARE.holds, 2),
}


def refuse_flags(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch``, which reads the flags of every command, with a check.

    Raises:
        UserError: a flag has an impossible value.
    """
    parsed = parse(*args, **kwargs)
    values = vars(parsed[0] if isinstance(parsed, tuple) else parsed)
    _refuse((flag(name), name, value) for name, value in values.items())
    return parsed


def refuse_configuration(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    """``call_main`` with a check: there the configuration of a YAML file is complete.

    Raises:
        UserError: a setting has an impossible value.
    """
    nodes: dict[str, Any] = {group: None if OmegaConf.is_missing(cfg, group) else cfg[group] for group in cfg}
    _refuse(
        (f"{group}.{name}", name, node[name])
        for group, node in nodes.items()
        if OmegaConf.is_dict(node)
        for name in node
        if not OmegaConf.is_missing(node, name)
    )
    if cfg.optimization.lr and not any(cfg.optimization.lr):
        logger.warning("the learning rate is 0 (--lr, optimization.lr): the weights will not change")
    return call_main(cfg, main, **kwargs)


def _refuse(given: Iterable[tuple[str, str, Any]]) -> None:
    """Check settings: how each is shown to the user, its name in :data:`LEGAL`, and its value."""
    problems: dict[str, str] = {}
    for shown, name, value in given:
        legal = SHARE if name.endswith("dropout") else LEGAL.get(name)
        if legal is not None and not legal.accepts(value):
            # One line per mistake: the settings of validation follow those of training, an optimizer repeats the rate.
            problems.setdefault(name.removesuffix("_valid"), f"{shown} must be {legal.words}, not {value}")
    if problems:
        raise UserError(list(problems.values()))


def apply() -> None:
    """Wrap the parser, and the start of commands that have no flags."""
    wrap(options, "parse_args_and_arch", refuse_flags, order=20)
    wrap(distributed_utils, "call_main", refuse_configuration, order=20)
