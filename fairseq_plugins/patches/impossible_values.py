"""A number that makes no sense ends in a stack trace, or is used: with ``--lr -0.1`` the loss climbs.

Here flags and YAML files are checked before anything is loaded. Not reported upstream so far.
"""

import ast
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fairseq import options
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from fairseq_plugins.errors import UserError, flag
from fairseq_plugins.sums import binarised_in

logger = logging.getLogger(__name__)


class Legal(NamedTuple):
    """The legal values of a setting, or of each number of a list: how a message says it, the test, a list's length."""

    words: str
    holds: Callable[[float], bool]
    numbers: int | None = None


AT_LEAST_0 = Legal("at least 0", lambda value: 0 <= value < math.inf)
AT_LEAST_1 = Legal("at least 1", lambda value: 1 <= value < math.inf)
SHARE = Legal("at least 0 and below 1", lambda value: 0 <= value < 1)
ABOVE_0 = Legal("above 0", lambda value: 0 < value < math.inf)
COUNTS = "max_tokens max_tokens_valid batch_size batch_size_valid required_batch_size_multiple update_freq beam nbest"
DIVISORS = "log_interval save_interval validate_interval num_shards checkpoint_shard_count required_seq_len_multiple"
WATCHED = "diagnostics_interval divergence_band divergence_patience"
NOT_NEGATIVE = "num_workers max_epoch max_update lr clip_norm weight_decay warmup_updates divergence_plateau"
LEGAL: Mapping[str, Legal] = {
    **dict.fromkeys([*COUNTS.split(), *DIVISORS.split(), *WATCHED.split()], AT_LEAST_1),
    **dict.fromkeys(NOT_NEGATIVE.split(), AT_LEAST_0),
    **dict.fromkeys("temperature adam_eps lamb_eps muon_lr_scale lr_decay_constant".split(), ABOVE_0),
    **dict.fromkeys(["label_smoothing", "muon_momentum"], SHARE),
    **dict.fromkeys(["lenpen", "unkpen"], Legal("a finite number", math.isfinite)),
    "length_grid": AT_LEAST_1,
    "seed": Legal("from 0 to 4294967295, as numpy requires", lambda value: 0 <= value < 2**32),
    # fairseq replaces before or after it joins subwords, and copies <unk> where the source word is unknown, too.
    "replace_unk": Legal(
        "unset, since fairseq copies wrong words: use subwords, with hardly any <unk>", lambda _: False
    ),
    "warmup_init_lr": Legal("at least 0, or -1 for the default of the schedule", lambda v: v == -1 or v >= 0),
    **dict.fromkeys(
        ["adam_betas", "lamb_betas"], Legal("two numbers in brackets, each at least 0 and below 1", SHARE.holds, 2)
    ),
}


NOT_INTERACTIVE = {"num_shards": 1, "shard_id": 0, "results_path": None, "prefix_size": 0, "sacrebleu": False}
"""Flags of ``fairseq-generate`` that ``fairseq-interactive`` has, too, and ignores; with their defaults."""


def is_legal(value: Any, legal: Legal) -> bool:
    """Return whether a setting may have ``value``; unset ones may, and switches such as ``retain_dropout``."""
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value.startswith("${")):
        return True
    try:
        value = ast.literal_eval(value) if isinstance(value, str) else value  # fairseq keeps some numbers as text
    except (ValueError, SyntaxError):
        return False
    numbers = list(value) if isinstance(value, (list, tuple)) or OmegaConf.is_list(value) else [value]
    if len(numbers) != (legal.numbers or max(len(numbers), 1)):
        return False
    return all(isinstance(number, (int, float)) and legal.holds(number) for number in numbers)


def refuse(settings: Iterable[tuple[str, str, Any]]) -> None:
    """Raise a UserError for impossible values; a setting is a text to show, a name in :data:`LEGAL`, and a value."""
    problems: dict[str, str] = {}
    for shown, name, value in settings:
        legal = SHARE if name.endswith("dropout") else LEGAL.get(name)
        if legal is not None and not is_legal(value, legal):
            # One line per mistake: the settings of validation follow those of training, an optimizer repeats the rate.
            problems.setdefault(name.removesuffix("_valid"), f"{shown} must be {legal.words}, not {value}")
    if problems:
        raise UserError(list(problems.values()))


def refuse_flags(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch``, which reads the flags of every command, with a check."""
    parsed = parse(*args, **kwargs)
    values = vars(parsed[0] if isinstance(parsed, tuple) else parsed)
    refuse((flag(name), name, value) for name, value in values.items())
    if (wanted := values.get("nbest", 1)) > values.get("beam", 1):
        raise UserError(f"--nbest {wanted} is more than --beam {values['beam']}, which is all that a search finds")
    if "sacrebleu" in values:  # fairseq-generate and fairseq-interactive
        unread = [flag(name) for name, usual in NOT_INTERACTIVE.items() if values.get(name, usual) != usual]
        if unread and "buffer_size" in values:
            raise UserError(f"{', '.join(unread)}: fairseq-interactive does not read it")
        if values["sacrebleu"]:
            raise UserError("--sacrebleu: fairseq does not read it; sacreBLEU is --scoring sacrebleu")
        if "buffer_size" not in values:
            warn_of_bleu(values)
    return parsed


def warn_of_bleu(values: Mapping[str, Any]) -> None:
    """Warn if the BLEU that ``fairseq-generate`` prints at its end is not that of translations in words."""
    if values.get("score_reference"):
        logger.warning("--score-reference compares the references with themselves: the BLEU at the end is always 100")
    if values.get("score_reference") or values.get("post_process") or values.get("bpe"):
        return
    data = Path(binarised_in(str(values.get("data") or "").split(os.pathsep)[0]))
    dictionaries = [path.read_text(encoding="utf-8", errors="ignore") for path in data.glob("dict*.txt")]
    if any(re.search("@@ |▁", words) for words in dictionaries):
        logger.warning("the BLEU at the end is that of subwords: add --remove-bpe, or --remove-bpe sentencepiece")


def refuse_configuration(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    """``call_main`` with a check: there the configuration of a YAML file is complete."""
    refuse(
        (f"{group}.{name}", name, node[name])
        for group, node in ((group, cfg[group]) for group in cfg if not OmegaConf.is_missing(cfg, group))
        if OmegaConf.is_dict(node)
        for name in node
        if not OmegaConf.is_missing(node, name)
    )
    return call_main(cfg, main, **kwargs)


WRAPPED = (
    (options, "parse_args_and_arch", refuse_flags, 20),
    (distributed_utils, "call_main", refuse_configuration, 20),
)
