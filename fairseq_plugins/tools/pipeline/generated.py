"""Read a test set's translations, in its order and none lost, or its loss from what fairseq's commands print."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.lines import read_lines

_SENTENCE = re.compile(r"^(?:D-(\d+)\t[^\t]*|T-(\d+))\t(.*)$")
"""Of ``fairseq-generate``: the number of a sentence and its detokenised hypothesis, or its number and reference."""
_LOSS = re.compile(r"Loss \(base 2\): ([\d.]+|nan|inf), Perplexity: ([\d.]+|nan|inf)")
_TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")


class Texts(NamedTuple):
    """The sentences of a test set in its order: translations with joined subwords, and the published references."""

    hypotheses: list[str]
    references: list[str]
    tokenised_references: list[str]
    """The text before subwords, so unknown words stay; without that file as ``fairseq-generate`` printed them."""


def texts_of(log: Path, published: Path, tokenised: Path) -> Texts:
    """Read the translations of a test set from the output of ``fairseq-generate``; ``tokenised`` may not exist.

    Raises:
        UserError: a sentence was not translated exactly once.
    """
    references = list(read_lines(published))
    hypotheses: dict[int, str] = {}
    printed: dict[int, str] = {}
    with open(log, encoding="utf-8", newline="\n") as lines:
        for match in filter(None, (_SENTENCE.match(line.rstrip("\n")) for line in lines)):
            texts, index = (hypotheses, int(match[1])) if match[1] else (printed, int(match[2]))
            if index in texts:
                raise UserError(f"{log}: sentence {index} was translated twice")
            texts[index] = match[3]
    for texts in (hypotheses, printed):
        missing = [index for index in range(len(references)) if index not in texts]
        if missing or len(texts) != len(references):
            first = f"; the first missing is {missing[0]}" if missing else ""
            raise UserError(f"{log}: {len(texts)} translations for {len(references)} test sentences{first}")
    tokens = list(read_lines(tokenised)) if tokenised.is_file() else [printed[index] for index in sorted(printed)]
    if len(tokens) != len(references):
        raise UserError(f"{tokenised}: {len(tokens)} lines, but {published} has {len(references)}")
    return Texts([hypotheses[index] for index in sorted(hypotheses)], references, tokens)


def write_perplexity(log: Path, raw: Path, target: Path) -> None:
    """Write the scores of a language model from the log of ``eval-lm``.

    Bits per byte (bits of the whole text over its bytes) are comparable between different tokens.

    Raises:
        UserError: the log contains no result.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    loss, tokens = _LOSS.search(text), _TOKENS.search(text)
    if not loss or not tokens:
        raise UserError(f"{log}: fairseq-deep eval-lm printed no loss")
    bits, count = float(loss[1]), int(tokens[1].replace(",", ""))
    how = f"eval-lm|tokens:{count}"
    values = [("perplexity", math.inf if bits >= 1024 else 2**bits, how), ("bits per token", bits, how)]
    if raw.is_file():
        size = raw.stat().st_size
        values.append(("bits per byte", bits * count / size, f"{how}|bytes:{size}"))
    shown = "".join(f"{name:<16}{value:.4f}  {signature}\n" for name, value, signature in values)
    write_whole(target.parent / "score.txt", shown)
    names = ("name", "value", "signature", "higher_is_better")
    metrics = [dict(zip(names, (*metric, False), strict=True)) for metric in values]
    write_whole(target, json.dumps({"tokens": count, "metrics": metrics}, indent=1) + "\n")
