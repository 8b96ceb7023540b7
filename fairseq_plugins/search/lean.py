"""``--search lean`` and ``--decode-precision``: the search and the numbers that a task translates with.

Legal for every task whose search is fairseq's; a task with a search of its own keeps it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks import FairseqTask

from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.search.beam import LeanSearch, LeanSearchWithAlignment
from fairseq_plugins.search.length_penalty import (
    GNMTRanking,
    GNMTSequenceGenerator,
    GNMTSequenceGeneratorWithAlignment,
)
from fairseq_plugins.search.precision import FLOAT32, PRECISIONS, lower

LEAN, STOCK = "lean", "fairseq"
SEARCHES = (LEAN, STOCK)

logger = logging.getLogger(__name__)


class LeanGNMTSearch(GNMTRanking, LeanSearch):
    """The lean search with scores in the GNMT form."""


class LeanGNMTSearchWithAlignment(GNMTRanking, LeanSearchWithAlignment):
    """The same for ``--print-alignment``."""


LEANER: Mapping[type, type] = {
    SequenceGenerator: LeanSearch,
    SequenceGeneratorWithAlignment: LeanSearchWithAlignment,
    GNMTSequenceGenerator: LeanGNMTSearch,
    GNMTSequenceGeneratorWithAlignment: LeanGNMTSearchWithAlignment,
}
"""The lean search for each search that it can stand in for."""


def choice(settings: Any, name: str, legal: Sequence[str]) -> str:
    """Return the value of a setting of a search, ``legal[0]`` if it is unset, as in older checkpoints.

    Raises:
        UserError: there is no such value.
    """
    value = str(getattr(settings, name, legal[0]))
    if value not in legal:
        raise UserError(unknown_name(flag(name), value, legal))
    return value


def with_alignment(args: Any, search: type | None, further: dict[str, Any] | None) -> tuple[type, dict[str, Any]]:
    """Return the class of a search and its keywords, fairseq's for ``--print-alignment`` if ``search`` is None."""
    alignment, extra = getattr(args, "print_alignment", None), dict(further or {})
    if search is not None:
        return search, extra
    if not alignment:
        return SequenceGenerator, extra
    return SequenceGeneratorWithAlignment, {**extra, "print_alignment": alignment}


def build_lean(
    build: Callable[..., Any],
    task: FairseqTask,
    models: Any,
    args: Any,
    seq_gen_cls: type | None = None,
    extra_gen_cls_kwargs: dict[str, Any] | None = None,
    prefix_allowed_tokens_fn: Callable[..., Any] | None = None,
) -> Any:
    """``FairseqTask.build_generator`` that applies ``args.search`` and ``args.decode_precision``.

    Raises:
        UserError: there is no such search or precision, or the machine or the search cannot use it.
    """
    search, precision = choice(args, "search", SEARCHES), choice(args, "decode_precision", PRECISIONS)
    if getattr(args, "score_reference", False):
        search = STOCK
    if search == STOCK:
        if precision != FLOAT32:
            raise UserError(f"--decode-precision {precision} needs --search {LEAN}, and a search: drop one of the two")
        return build(task, models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn)
    seq_gen_cls, extra = with_alignment(args, seq_gen_cls, extra_gen_cls_kwargs)
    generator = build(task, models, args, LEANER.get(seq_gen_cls, seq_gen_cls), extra, prefix_allowed_tokens_fn)
    if precision != FLOAT32:
        for model in models:
            lower(model, precision)
    return generator
