"""Read a test set's translations, in its order and none lost, or its loss from the output of fairseq's commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline.fairseq_log import language_model_loss, sentence
from fairseq_plugins.scoring.text import read_sentences


class Texts(NamedTuple):
    """The sentences of a test set in its order.

    Args:
        hypotheses: translations; subwords are joined.
        references: as published.
        tokenised_references: the text before subwords, so unknown words stay; without that file what
            ``fairseq-generate`` printed, as the model's dictionary knows it.
    """

    hypotheses: list[str]
    references: list[str]
    tokenised_references: list[str]


def texts_of(log: Path, published: Path, tokenised: Path) -> Texts:
    """Read the translations of a test set.

    Args:
        log: the output of ``fairseq-generate``.
        published: the published references.
        tokenised: the tokenised references, which may not exist.

    Raises:
        UserError: a sentence was not translated exactly once.
    """
    references = read_sentences(published)
    with open(log, encoding="utf-8", newline="\n") as lines:
        content = list(lines)
    try:
        hypotheses, printed = (_in_order(kind, content, len(references)) for kind in "DT")
    except UserError as error:
        raise UserError(f"{log}: {error}") from None
    tokens = read_sentences(tokenised) if tokenised.is_file() else printed
    if len(tokens) != len(references):
        raise UserError(f"{tokenised}: {len(tokens)} lines, but {published} has {len(references)}")
    return Texts(hypotheses, references, tokens)


def _in_order(kind: str, lines: Sequence[str], expected: int) -> list[str]:
    """The sentences of one kind in the output, ``D`` or ``T``, in the order of the test set: each of them once."""
    texts: dict[int, str] = {}
    for _, index, text in (printed for printed in map(sentence, lines) if printed and printed[0] == kind):
        if index in texts:
            raise UserError(f"sentence {index} was translated twice")
        texts[index] = text
    missing = [index for index in range(expected) if index not in texts]
    if missing or len(texts) != expected:
        first = f"; the first missing is {missing[0]}" if missing else ""
        raise UserError(f"{len(texts)} translations for {expected} test sentences{first}")
    return [texts[index] for index in range(expected)]


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
    values = [("perplexity", 2**bits, how), ("bits per token", bits, how)]
    if raw.is_file():
        size = raw.stat().st_size
        values.append(("bits per byte", bits * count / size, f"{how}|bytes:{size}"))
    shown = "".join(f"{name:<16}{value:.4f}  {signature}\n" for name, value, signature in values)
    write_whole(target.parent / "score.txt", shown)
    names = ("name", "value", "signature", "higher_is_better")
    metrics = [dict(zip(names, (*metric, False), strict=True)) for metric in values]
    write_whole(target, json.dumps({"tokens": count, "metrics": metrics}, indent=1) + "\n")
