"""Read a test set's translations, in its order and none lost, or its loss from the output of fairseq's commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline.fairseq_log import language_model_loss, sentence
from fairseq_plugins.pipeline.run import REFERENCES
from fairseq_plugins.scoring.text import read_sentences


def hypotheses_in_order(lines: Iterable[str], expected: int) -> list[str]:
    """The translations in ``fairseq-generate``'s output, in the order of the test set.

    Raises:
        UserError: a sentence is missing, comes twice, or is not of this test set.
    """
    return _in_order("D", lines, expected)


def references_in_order(lines: Iterable[str], expected: int) -> list[str]:
    """The references in ``fairseq-generate``'s output, as the model's dictionary knows them.

    Raises:
        UserError: a sentence is missing, comes twice, or is not of this test set.
    """
    return _in_order("T", lines, expected)


def _in_order(kind: str, lines: Iterable[str], expected: int) -> list[str]:
    texts: dict[int, str] = {}
    for line in lines:
        printed = sentence(line)
        if printed is None or printed[0] != kind:
            continue
        _, index, text = printed
        if index in texts:
            raise UserError(f"sentence {index} was translated twice")
        texts[index] = text
    missing = [index for index in range(expected) if index not in texts]
    if missing or len(texts) != expected:
        first = f"; the first missing is {missing[0]}" if missing else ""
        raise UserError(f"{len(texts)} translations for {expected} test sentences{first}")
    return [texts[index] for index in range(expected)]


def write_texts(log: Path, published: Path, tokenised: Path, target: Path) -> None:
    """Write ``hypotheses.tok``, ``references.tok`` and ``references.txt`` into the directory of a test set.

    The tokenised references are the text before subwords, so unknown words stay. A corpus without that file gets what
    ``fairseq-generate`` printed.

    Raises:
        UserError: a sentence was not translated exactly once.
    """
    raw = read_sentences(published)
    with open(log, encoding="utf-8", newline="\n") as lines:
        content = list(lines)
    try:
        hypotheses = hypotheses_in_order(content, len(raw))
        printed = references_in_order(content, len(raw))
    except UserError as error:
        raise UserError(f"{log}: {error}") from None
    references = read_sentences(tokenised) if tokenised.is_file() else printed
    if len(references) != len(raw):
        raise UserError(f"{tokenised}: {len(references)} lines, but {published} has {len(raw)}")
    write_lines(target.parent / "references.tok", references)
    write_lines(target.parent / REFERENCES, raw)
    write_lines(target, hypotheses)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines, each with a line feed."""
    write_whole(path, "".join(line + "\n" for line in lines))


def write_perplexity(log: Path, raw: Path, target: Path) -> None:
    """Write the scores of a language model from the log of ``eval-lm``.

    Bits per byte (bits of the whole text over its bytes) are comparable between different tokens.

    Raises:
        UserError: the log contains no result.
    """
    printed = log.read_text(encoding="utf-8", errors="replace")
    if (loss := language_model_loss(printed)) is None:
        raise UserError(f"{log}: fairseq-deep eval-lm printed no loss")
    bits, count = loss
    how = f"eval-lm|tokens:{count}"
    metrics = [_metric("perplexity", 2**bits, how), _metric("bits per token", bits, how)]
    if raw.is_file():
        size = raw.stat().st_size
        metrics.append(_metric("bits per byte", bits * count / size, f"{how}|bytes:{size}"))
    content = {"tokens": count, "metrics": metrics}
    shown = [f"{metric['name']:<16}{metric['value']:.4f}  {metric['signature']}\n" for metric in metrics]
    write_whole(target.parent / "score.txt", "".join(shown))
    write_whole(target, json.dumps(content, indent=1) + "\n")


def _metric(name: str, value: float, signature: str) -> dict[str, Any]:
    return {"name": name, "value": value, "signature": signature, "higher_is_better": False}
