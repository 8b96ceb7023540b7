"""Detect text whose score would be meaningless: each suspicion is one line, with its count."""

import re
from collections.abc import Iterator, Sequence

_SPACED = re.compile(r"\S ([.,]( |$))|&(apos|quot|amp|#91|#93);|@-@")
"""Traces of Moses that no writer leaves: a space before a full stop or comma, escapes, split hyphens."""

_SUBWORD = re.compile(r"@@( |$)|▁")
_UNKNOWN = re.compile(r"<<unk>>|<unk>")
_EMPTY = re.compile(r"^\s*\Z")
_UNSPACED = re.compile("[぀-ヿ一-鿿]{8}")
"""Kana and ideographs as they are written, without spaces; few words of segmented text are so long."""

_TOKENISED_SHARE = 0.1
"""Above this share of spaced sentences a text counts as tokenised. Published raw references stay below 0.01."""


def suspicions(name: str, hypotheses: Sequence[str], references: Sequence[str], *, lower_case: bool) -> Iterator[str]:
    """Yield suspicions about plain-text ``hypotheses`` of the system ``name``, one line each.

    ``lower_case``: both sides will be lower-cased before they are compared.
    """
    yield from marks(name, hypotheses)
    share = _spaced_share(hypotheses)
    if share > _TOKENISED_SHARE and share > 2 * _spaced_share(references):
        how = "but the references do not: sacreBLEU, chrF and TER need detokenised text"
        yield f"{name}: {share:.0%} of the sentences look tokenised, {how}"
    ours, theirs = "".join(hypotheses), "".join(references)
    if not lower_case and ours.islower() and theirs != theirs.lower():
        yield f"{name}: no sentence has an upper-case letter, but the references do: use --lower-case"


def reference_suspicions(references: Sequence[str]) -> Iterator[str]:
    """Yield suspicions about plain-text references, one line each."""
    yield from marks("the references", references)
    share = _spaced_share(references)
    if share > _TOKENISED_SHARE:
        how = "sacreBLEU of them is not comparable with any published one; use the references as they were published"
        yield f"the references: {share:.0%} of the sentences look tokenised: {how}"
    if (unspaced := sum(map(bool, map(_UNSPACED.search, references)))) > _TOKENISED_SHARE * len(references):
        yield f"the references: {unspaced} sentences have no spaces, so that each is a word: use sacrebleu -tok zh"


def marks(name: str, sentences: Sequence[str]) -> Iterator[str]:
    """Yield traces of subwords and unknown words, and empty sentences, in text of any kind."""
    for pattern, problem in (
        (_SUBWORD, "with subword marks ('@@ ' or '▁'): remove them first (fairseq-generate --remove-bpe)"),
        (_UNKNOWN, "with <unk> or <<unk>>, which matches nothing or the wrong thing: score against the original text"),
        (_EMPTY, "empty"),
    ):
        if count := sum(1 for sentence in sentences if pattern.search(sentence)):
            yield f"{name}: {count} sentence{'' if count == 1 else 's'} {problem}"


def _spaced_share(sentences: Sequence[str]) -> float:
    return sum(1 for sentence in sentences if _SPACED.search(sentence)) / len(sentences)
