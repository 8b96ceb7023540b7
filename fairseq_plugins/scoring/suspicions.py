"""Detect text whose score would be meaningless: each suspicion is one line, with its count."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_SPACED = re.compile(r"\S ([.,]( |$))|&(apos|quot|amp|#91|#93);|@-@")
"""Traces of Moses that no writer leaves: a space before a full stop or comma, escapes, split hyphens."""

_SUBWORD = re.compile(r"@@( |$)|▁")
_UNKNOWN = re.compile(r"<<unk>>|<unk>")

_TOKENISED_SHARE = 0.1
"""Above this share of spaced sentences a text counts as tokenised. Published raw references stay below 0.01."""


def suspicions(name: str, hypotheses: Sequence[str], references: Sequence[str], *, lower_case: bool) -> list[str]:
    """Return what looks wrong with plain-text ``hypotheses`` of the system ``name``, one line each.

    ``lower_case``: both sides will be lower-cased before they are compared.
    """
    found = marks(name, hypotheses)
    share, usual = _share(hypotheses, _SPACED.search), _share(references, _SPACED.search)
    if share > _TOKENISED_SHARE and share > 2 * usual:
        found.append(
            f"{name}: {share:.0%} of the sentences look tokenised, but the references do not: sacreBLEU, chrF and TER "
            "need detokenised text"
        )
    if not lower_case and _only_lower(hypotheses) and _has(references, str.isupper):
        found.append(f"{name}: no sentence has an upper-case letter, but the references do: use --lower-case")
    return found


def reference_suspicions(references: Sequence[str]) -> list[str]:
    """Return what looks wrong with plain-text references."""
    found = marks("the references", references)
    share = _share(references, _SPACED.search)
    if share > _TOKENISED_SHARE:
        found.append(
            f"the references: {share:.0%} of the sentences look tokenised: sacreBLEU of them is not comparable with "
            "any published one; use the references as they were published"
        )
    return found


def marks(name: str, sentences: Sequence[str]) -> list[str]:
    """Return traces of subwords and unknown words, and empty sentences, in text of any kind."""
    found = []
    for pattern, what in (
        (_SUBWORD, "with subword marks ('@@ ' or '▁'): remove them first (fairseq-generate --remove-bpe)"),
        (_UNKNOWN, "with <unk> or <<unk>>, which matches nothing or the wrong thing: score against the original text"),
    ):
        count = sum(1 for sentence in sentences if pattern.search(sentence))
        if count:
            found.append(f"{name}: {_sentences(count)} {what}")
    empty = sum(1 for sentence in sentences if not sentence.strip())
    if empty:
        found.append(f"{name}: {_sentences(empty)} empty")
    return found


def _sentences(count: int) -> str:
    return f"{count} sentence{'' if count == 1 else 's'}"


def _share(sentences: Sequence[str], test: Callable[[str], object]) -> float:
    return sum(1 for sentence in sentences if test(sentence)) / len(sentences)


def _only_lower(sentences: Sequence[str]) -> bool:
    return _has(sentences, str.islower) and not _has(sentences, str.isupper)


def _has(sentences: Sequence[str], kind: Callable[[str], bool]) -> bool:
    return any(kind(character) for sentence in sentences for character in sentence)
