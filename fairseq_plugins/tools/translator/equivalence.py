"""The comparison behind an export: two engines score the same random sentences, and search the same ones."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.translator.engines import CTranslate2Engine, Tokens
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine

Engine = CTranslate2Engine | FairseqEngine
TRANSLATED = 16
"""Number of random sentences that both searches translate."""
LONGEST = 40
"""The longest random sentence, in tokens."""
LARGEST_DIFFERENCE = 1e-4
"""So much may two log-probabilities (natural log, float32) up to 1 differ; larger ones in proportion."""
LARGEST_MEAN = 0.5
"""A larger mean difference (natural log) is no rounding of weights; int8 at width 64 has 0.025, wider models less."""
ROUNDING = 1e-4
"""Two translations of scores (natural log) that differ by less are equally good: rounding has chosen one of them."""


def drawn_texts(dictionaries: Any, positions: Sequence[int], count: int) -> list[list[list[str]]]:
    """Return ``count`` random sentences of the source and of the target.

    They have 1 to 40 words, or as many as a model with so many positions takes, drawn by their frequency.
    """
    texts: list[list[list[str]]] = []
    for seed, words in enumerate((dictionaries.source_dictionary, dictionaries.target_dictionary), start=1):
        longest = min(LONGEST, positions[seed - 1] - 1)
        generator = torch.Generator().manual_seed(seed)
        counts = torch.tensor(words.count[words.nspecial :], dtype=torch.float64).clamp(min=1)
        lengths = [1 + number * (longest - 1) // (count - 1) for number in range(count)]
        drawn = (torch.multinomial(counts, length, True, generator=generator).tolist() for length in lengths)
        texts.append([[words[words.nspecial + index] for index in sentence] for sentence in drawn])
    return texts


def compare_scores(
    ours: FairseqEngine, theirs: Engine, texts: Sequence[list[list[str]]], name: str, largest: float = math.inf
) -> str:
    """Compare the log-probabilities of two engines, and return in a line how much they differ.

    Raises UserError: they differ by more than ``largest``, relative to log-probabilities above 1.
    """
    here, there = ([score for scores in engine.score(*texts) for score in scores] for engine in (ours, theirs))
    differences = [abs(a - b) for a, b in zip(here, there, strict=True)]
    mean = sum(differences) / len(differences)
    if not mean <= LARGEST_MEAN:
        raise UserError(f"{name}: log-probabilities differ by {mean:.1e} on average; nothing written")
    worst = max(difference / max(1.0, abs(value)) for value, difference in zip(here, differences, strict=True))
    if not worst <= largest:
        engine = theirs.label.partition(",")[0]
        raise UserError(f"{name}: {engine} computes something else (difference {worst:.1e}); nothing written")
    return (
        f"{name}: {len(here):,} log-probabilities of {len(texts[0])} sentences, down to {min(here):.1f}: "
        f"largest difference {max(differences):.1e}, mean {mean:.1e}"
    )


def compare_searches(ours: FairseqEngine, theirs: Engine, sentences: Sequence[Tokens]) -> str:
    """Translate sentences with both engines, and return how many translations are equal, in a line."""
    pairs = [(a, b) for [a], [b] in zip(ours.search(sentences), theirs.search(sentences), strict=True)]
    others = [(a, b) for a, b in pairs if a.tokens != b.tokens]
    ties = sum(abs(a.score - b.score) < ROUNDING for a, b in others)
    tied = f", {ties} more equally good" if ties else ""
    return f"beam search: {len(pairs) - len(others)} of {len(pairs)} translations are equal{tied}"
