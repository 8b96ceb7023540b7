"""A number that makes no sense ends in a stack trace, or counts: with ``--lr -0.1`` the loss climbs.

Flags and YAML files are read through here before anything is loaded.
https://github.com/facebookresearch/fairseq/issues/3403
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairseq import options
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from fairseq_plugins.compat.wrapping import wrap
from fairseq_plugins.errors import UserError


@dataclass(frozen=True)
class Legal:
    """The legal values of a setting, or of each number of a list: in words, and whether a number is one."""

    words: str
    holds: Callable[[float], bool]

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` is legal; what is no number is for others to judge."""
        if isinstance(value, (list, tuple)) or OmegaConf.is_list(value):
            return len(value) > 0 and all(self.accepts(item) for item in value)
        return isinstance(value, bool) or not isinstance(value, (int, float)) or self.holds(value)


AT_LEAST_0 = Legal("at least 0", lambda value: 0 <= value < math.inf)
AT_LEAST_1 = Legal("at least 1", lambda value: 1 <= value < math.inf)
ABOVE_0 = Legal("above 0", lambda value: 0 < value < math.inf)
FINITE = Legal("a finite number", math.isfinite)
SHARE = Legal("at least 0 and below 1", lambda value: 0 <= value < 1)
SEED = Legal("from 0 to 4294967295, as numpy wants it", lambda value: 0 <= value < 2**32)

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
    "warmup_init_lr": Legal("at least 0, or -1 for what the schedule makes of it", lambda v: v == -1 or v >= 0),
    "label_smoothing": SHARE,
    "adam_betas": SHARE,
    "beam": AT_LEAST_1,
    "nbest": AT_LEAST_1,
    "lenpen": FINITE,
    "unkpen": FINITE,
    "temperature": ABOVE_0,
}


def settings(cfg: Any) -> Iterator[tuple[str, Any]]:
    """Key and value of every setting of a configuration; an older part of fairseq has a namespace in its place."""
    for group in cfg:
        node = None if OmegaConf.is_missing(cfg, group) else cfg[group]
        if OmegaConf.is_dict(node):
            yield from ((f"{group}.{name}", node[name]) for name in node if not OmegaConf.is_missing(node, name))


def problem(shown: str, name: str, value: Any) -> str:
    """What is wrong with a setting; empty if nothing is.

    Args:
        shown: how the user knows it.
        name: its name in :data:`LEGAL`.
        value: its value.
    """
    if name == "adam_betas" and isinstance(value, str):
        # fairseq keeps the pair as it was written.
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
        if not isinstance(value, (tuple, list)):
            return f"{shown} must be two numbers in brackets, not {value}"
    legal = SHARE if name.endswith("dropout") else LEGAL.get(name)
    return "" if legal is None or legal.accepts(value) else f"{shown} must be {legal.words}, not {value}"


def refuse_flags(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch``, through which the flags of every command pass.

    Raises:
        UserError: one has a value that it cannot have.
    """
    parsed = parse(*args, **kwargs)
    values = vars(parsed[0] if isinstance(parsed, tuple) else parsed)
    # Where validation has no size of its own, fairseq has given it the size of training.
    sizes = ("max_tokens", "batch_size")
    copies = {f"{name}_valid" for name in sizes if values.get(name) == values.get(f"{name}_valid")}
    found = {name: problem("--" + name.replace("_", "-"), name, value) for name, value in values.items()}
    _refuse([text for name, text in found.items() if name not in copies])
    return parsed


def refuse_configuration(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    """``call_main``, where the configuration of a YAML file is complete.

    Raises:
        UserError: a setting has a value that it cannot have.
    """
    _refuse([problem(key, key.rpartition(".")[2], value) for key, value in settings(cfg)])
    return call_main(cfg, main, **kwargs)


def _refuse(texts: Iterable[str]) -> None:
    if found := [text for text in texts if text]:
        raise UserError(found)


def apply() -> None:
    """Wrap the parser, and the start of commands that have no flags."""
    wrap(options, "parse_args_and_arch", refuse_flags)
    wrap(distributed_utils, "call_main", refuse_configuration)
