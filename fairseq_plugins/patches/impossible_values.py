"""A number that makes no sense ends in a stack trace, or is used: with ``--lr -0.1`` the loss climbs.

Here flags and YAML files are checked before anything is loaded. Not reported upstream so far.
"""

from __future__ import annotations

import ast
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
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
            # fairseq keeps some numbers as text, and others as a reference to another setting.
            return value.startswith("${") or self.accepts(_number(value))
        if isinstance(value, (list, tuple)) or OmegaConf.is_list(value):
            return len(value) == (self.numbers or max(1, len(value))) and all(map(self._accepts_one, value))
        return self.numbers is None and self._accepts_one(value)

    def _accepts_one(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and self.holds(value)


def _number(text: str) -> Any:
    """Return ``text`` as a Python literal; NaN if it is not one."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return math.nan


AT_LEAST_0 = Legal("at least 0", lambda value: 0 <= value < math.inf)
AT_LEAST_1 = Legal("at least 1", lambda value: 1 <= value < math.inf)
ABOVE_0 = Legal("above 0", lambda value: 0 < value < math.inf)
FINITE = Legal("a finite number", math.isfinite)
SHARE = Legal("at least 0 and below 1", lambda value: 0 <= value < 1)
SEED = Legal("from 0 to 4294967295, as numpy requires", lambda value: 0 <= value < 2**32)

LEGAL: Mapping[str, Legal] = {
    "seed": SEED,
    "max_tokens": AT_LEAST_1,
    "max_tokens_valid": AT_LEAST_1,
    "batch_size": AT_LEAST_1,
    "batch_size_valid": AT_LEAST_1,
    "required_batch_size_multiple": AT_LEAST_1,
    "num_workers": AT_LEAST_0,
    "update_freq": AT_LEAST_1,
    "max_epoch": AT_LEAST_0,
    "max_update": AT_LEAST_0,
    "lr": AT_LEAST_0,
    "clip_norm": AT_LEAST_0,
    "weight_decay": AT_LEAST_0,
    "warmup_updates": AT_LEAST_0,
    "warmup_init_lr": Legal("at least 0, or -1 for the default of the schedule", lambda v: v == -1 or v >= 0),
    "label_smoothing": SHARE,
    "adam_betas": Legal("two numbers in brackets, each at least 0 and below 1", SHARE.holds, 2),
    "beam": AT_LEAST_1,
    "nbest": AT_LEAST_1,
    "lenpen": FINITE,
    "unkpen": FINITE,
    "temperature": ABOVE_0,
}


def settings(cfg: Any) -> Iterator[tuple[str, Any]]:
    """Yield key and value of every setting of a configuration."""
    for group in cfg:
        node: Any = None if OmegaConf.is_missing(cfg, group) else cfg[group]
        if OmegaConf.is_dict(node):
            yield from ((f"{group}.{name}", node[name]) for name in node if not OmegaConf.is_missing(node, name))


def problem(shown: str, name: str, value: Any) -> str:
    """Return the problem of a setting; empty if there is none.

    Args:
        shown: its name for the user.
        name: its name in :data:`LEGAL`.
        value: its value.
    """
    legal = SHARE if name.endswith("dropout") else LEGAL.get(name)
    return "" if legal is None or legal.accepts(value) else f"{shown} must be {legal.words}, not {value}"


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
    _refuse((key, key.rpartition(".")[2], value) for key, value in settings(cfg))
    if cfg.optimization.lr and not any(cfg.optimization.lr):
        logger.warning("the learning rate is 0 (--lr, optimization.lr): the weights will not change")
    return call_main(cfg, main, **kwargs)


def _refuse(given: Iterable[tuple[str, str, Any]]) -> None:
    found: dict[str, str] = {}
    for shown, name, value in given:
        # One line per mistake: the settings of validation follow those of training, and an optimizer repeats the rate.
        if text := problem(shown, name, value):
            found.setdefault(name.removesuffix("_valid"), text)
    if found:
        raise UserError(list(found.values()))


def apply() -> None:
    """Wrap the parser, and the start of commands that have no flags."""
    wrap(options, "parse_args_and_arch", refuse_flags, order=20)
    wrap(distributed_utils, "call_main", refuse_configuration, order=20)
