"""A line that is too long for the model ends ``fairseq-interactive`` in a trace, and the lines after it are lost.

Here it translates every other line, names the missing ones, and does not exit with 0.
https://github.com/facebookresearch/fairseq/issues/257
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import torch
from fairseq.tasks import FairseqTask
from fairseq_cli import interactive

from fairseq_plugins.errors import UserError, report
from fairseq_plugins.patches.wrapping import wrap


class Lines:
    """The lines of one run of ``fairseq-interactive``: how many were read, and how many of them were too long."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset the counts."""
        self.read = self.refused = 0

    def select(self, lengths: Sequence[int], limits: dict[str, int]) -> list[int]:
        """Return which of the next lines are short enough; warns about each other one."""
        kept = []
        for place, line, length in zip(count(), count(self.read + 1), lengths, strict=False):
            exceeded = [f"{limit:,} ({name})" for name, limit in limits.items() if length > limit]
            if exceeded:
                self.refused += 1
                report(
                    UserError(
                        f"line {line} has {length:,} tokens with the end mark, more than {exceeded[0]}: not translated"
                    )
                )
            else:
                kept.append(place)
        self.read += len(lengths)
        return kept


LINES = Lines()


def limits_of(cfg: Any, max_positions: Any) -> dict[str, int]:
    """Return the longest possible source sentence, by the setting that limits it."""
    source = max_positions[0] if isinstance(max_positions, (tuple, list)) else max_positions
    found = {"the model or --max-source-positions": source, "--max-tokens": cfg.dataset.max_tokens}
    return {name: int(limit) for name, limit in found.items() if limit is not None and limit < float("inf")}


def batches_of_what_fits(
    make_batches: Callable[..., Iterator[Any]],
    lines: list[str],
    cfg: Any,
    task: FairseqTask,
    max_positions: Any,
    encode_fn: Callable[[str], str],
) -> Iterator[Any]:
    """``make_batches`` of the lines that are short enough; they keep their numbers."""
    if cfg.dataset.skip_invalid_size_inputs_valid_test:
        yield from make_batches(lines, cfg, task, max_positions, encode_fn)
        return
    # Constraints on the translation follow a tab.
    sources = [line.partition("\t")[0] for line in lines] if cfg.generation.constraints else lines
    _, lengths = task.get_interactive_tokens_and_lengths(sources, encode_fn)
    kept = LINES.select(lengths, limits_of(cfg, max_positions))
    if kept:
        for batch in make_batches([lines[place] for place in kept], cfg, task, max_positions, encode_fn):
            yield batch._replace(ids=torch.tensor(kept)[batch.ids])


def translate_or_tell(main: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """``fairseq-interactive`` that fails if a line has no translation.

    Raises:
        UserError: there is such a line.
    """
    LINES.begin()
    main(*args, **kwargs)
    if LINES.refused:
        raise UserError(f"{LINES.refused} of {LINES.read} lines have no translation because they are too long")


def apply() -> None:
    """Wrap the loop of ``fairseq-interactive`` over its lines."""
    wrap(interactive, "make_batches", batches_of_what_fits)
    wrap(interactive, "main", translate_or_tell)
