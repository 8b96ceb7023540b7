"""Text is misread: a carriage return begins a line of ``fairseq-interactive``, a byte order mark is a part of a word.

* A text with a carriage return inside a sentence gets more translations than it has lines, and the following ones are
  shifted. A byte that is not UTF-8 ends in a stack trace. An empty line is translated into words without a source.
* ``fairseq-score`` stops at the end of the shorter file.
* The first word of a dictionary, with a byte order mark, is unknown in every text.
  https://github.com/facebookresearch/fairseq/issues/3417
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from fairseq.data.dictionary import Dictionary
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq_cli import interactive, score

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import decoded, grouped, in_step

MARK = "\ufeff"


def read_to_line_feeds(_: Callable[..., Iterator[list[str]]], input: str, buffer_size: int) -> Iterator[list[str]]:
    """``buffered_read`` whose lines end at the line feed alone; lines before a UserError have been yielded."""
    standard = input == "-"
    with nullcontext(sys.stdin.buffer) if standard else open(input, "rb") as stream:
        lines = decoded(stream, "standard input" if standard else input)
        yield from grouped(map(str.strip, lines), buffer_size)


def leave_empty(
    step: Callable[..., Any], task: FairseqTask, generator: Any, models: Any, sample: Any, *args: Any, **kwargs: Any
) -> Any:
    """``inference_step`` that leaves an empty line of ``fairseq-interactive`` empty, with a score of 0."""
    hypotheses = step(task, generator, models, sample, *args, **kwargs)
    tokens = sample["net_input"].get("src_tokens")
    # The batches of a test set have more keys, and sounds more dimensions.
    if set(sample) == {"net_input"} and tokens is not None and tokens.dim() == 2:
        empty = tokens.ne(task.source_dictionary.pad()).sum(1) == 1
        end = {"tokens": tokens.new_tensor([task.target_dictionary.eos()]), "score": 0.0, "alignment": []}
        for number in empty.nonzero().flatten().tolist():
            hypotheses[number] = [{**hypotheses[number][0], **end, "positional_scores": torch.zeros(1)}]
    return hypotheses


def read_without_mark(add_from_file: Callable[..., None], dictionary: Dictionary, file: Any) -> None:
    """``Dictionary.add_from_file``, or a UserError if the first word begins with the mark."""
    first = len(dictionary)
    add_from_file(dictionary, file)
    if dictionary.symbols[first:] and dictionary[first].startswith(MARK) and dictionary[first] != MARK:
        raise UserError(f"{getattr(file, 'name', file)}: line 1: begins with a byte order mark; remove it")


def score_all_lines(cli_main: Callable[[], None]) -> None:
    """``fairseq-score``, or a UserError if the files have different numbers of lines."""
    args, _ = score.get_parser().parse_known_args()
    if args.sys != "-":
        for _ in in_step([Path(args.sys), Path(args.ref)]):
            pass
    cli_main()


WRAPPED = (
    (interactive, "buffered_read", read_to_line_feeds),
    (FairseqTask, "inference_step", leave_empty),
    (Dictionary, "add_from_file", read_without_mark),
    (score, "cli_main", score_all_lines),
)
