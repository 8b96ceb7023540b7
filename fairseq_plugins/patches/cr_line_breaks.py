"""``fairseq-interactive`` begins a line at a carriage return, and ends in a stack trace at a byte that is not UTF-8.

So a text with a carriage return inside a sentence gets more translations than it has lines, and the following ones are
shifted. A byte order mark becomes a part of the first word. An empty line is translated into words that nobody wrote.
Not reported upstream so far.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq_cli import interactive

from fairseq_plugins.lines import decoded, grouped


def read_to_line_feeds(_: Callable[..., Iterator[list[str]]], input: str, buffer_size: int) -> Iterator[list[str]]:
    """``buffered_read`` whose lines end at the line feed alone.

    Args:
        input: a file, or ``-`` for standard input.
        buffer_size: lines that are yielded together.

    Raises:
        UserError: a line is not UTF-8; what precedes it has been yielded.
    """
    standard = input == "-"
    with nullcontext(sys.stdin.buffer) if standard else open(input, "rb") as stream:
        lines = decoded(stream, "standard input" if standard else input)
        yield from grouped(map(str.strip, lines), buffer_size)


def leave_empty(
    step: Callable[..., Any], task: FairseqTask, generator: Any, models: Any, sample: Any, *args: Any, **kwargs: Any
) -> Any:
    """``inference_step`` that leaves an empty line of ``fairseq-interactive`` empty, with a score of 0."""
    found = step(task, generator, models, sample, *args, **kwargs)
    tokens = sample["net_input"].get("src_tokens")
    # The batches of a test set have more keys, and sounds more dimensions.
    if set(sample) == {"net_input"} and tokens is not None and tokens.dim() == 2:
        empty = tokens.ne(task.source_dictionary.pad()).sum(1) == 1
        end = {"tokens": tokens.new_tensor([task.target_dictionary.eos()]), "score": 0.0, "alignment": []}
        for number in empty.nonzero().flatten().tolist():
            found[number] = [{**found[number][0], **end, "positional_scores": torch.zeros(1)}]
    return found


WRAPPED = ((interactive, "buffered_read", read_to_line_feeds), (FairseqTask, "inference_step", leave_empty))
