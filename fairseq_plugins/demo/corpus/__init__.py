"""The embedded corpus: German-English sentence pairs from a synchronous grammar with real morphology.

A tree is sampled (:mod:`grammar`, :mod:`clauses`, :mod:`nominals`, :mod:`times`) and put into words twice
(:mod:`german_syntax`, :mod:`english_syntax`), with words from the tables in ``lexicon/``.
"""

from .generate import Pair, pairs, write_corpus

__all__ = ["Pair", "pairs", "write_corpus"]
