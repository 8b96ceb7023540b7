"""Small models for the analyses, and the tables that come out."""

import csv
from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq_plugins.checkpoints.fold import made_up_task
from fairseq_plugins.tools.observe.diagnostics.batches import Batch, zipf_batch
from fairseq_plugins.tools.observe.diagnostics.models import Subject, of_options
from tests.models import TINY

WORDS = 60
SMALL: dict[str, Any] = {**TINY, "share_all_embeddings": True}


def subject(method: str, words: int = WORDS, **settings: Any) -> Subject:
    """A small model of ``method``."""
    said = Namespace(**{**SMALL, **settings})
    return of_options(method, said, made_up_task(words, words))


def wide(width: int, layers: int, **settings: Any) -> dict[str, Any]:
    """Settings of a model of that width and depth on both sides, feed-forward four times as wide."""
    sizes: dict[str, Any] = {}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_embed_dim"] = width
        sizes[f"{stack}_ffn_embed_dim"] = 4 * width
        sizes[f"{stack}_layers"] = layers
        sizes[f"{stack}_attention_heads"] = max(1, width // 64)
    return {**sizes, **settings}


def batch(words: int = WORDS, sentences: int = 3, length: int = 6) -> Batch:
    """A batch of made-up sentences."""
    return zipf_batch(made_up_task(words, words), sentences, length)


def padded(words: int = WORDS) -> Batch:
    """Like :func:`batch`, but the second source has pads on the left, the last target on the right."""
    made = batch(words)
    left, right = slice(0, 2), slice(4, 6)
    for tensor, row, places in ((made.source, 1, left), (made.previous, 2, right), (made.target, 2, right)):
        tensor[row, places] = 1
    return made._replace(lengths=made.source.ne(1).sum(dim=1))


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
