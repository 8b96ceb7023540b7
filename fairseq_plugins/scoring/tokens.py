"""The forms of text that older papers score: Moses tokens, with compounds split at hyphens, with straight quotes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sacremoses import MosesPunctNormalizer

from fairseq_plugins.text.tokenise import Splitter

_HYPHEN = re.compile(rb"(?<!\S)@-@(?!\S)|(\S)-(\S)")


def moses(sentences: Sequence[str], language: str) -> list[str]:
    """Return Moses tokens of plain text, separated by spaces; as for fairseq's IWSLT'14 and Google's WMT data, hyphens
    are left in their words. Not escaped: BLEU counts ``&apos;s`` and ``'s`` alike.

    sacremoses differs from Moses' Perl of today in the last full stop of one to three sentences in a thousand. Here
    that is wanted: it is Moses before November 2018, with which newstest2014 has the 64,496 tokens of the published
    tables.
    """  # noqa: D205
    tokeniser = Splitter(language, last_full_stop=False)
    return [str(tokeniser.tokenize(sentence, return_str=True, escape=False)) for sentence in sentences]


def straight_punctuation(sentences: Sequence[str]) -> list[str]:
    """Replace Unicode quotes, commas and the like by ASCII, as Moses' replace-unicode-punctuation.perl does."""
    return list(map(MosesPunctNormalizer().replace_unicode_punct, sentences))


def split_compounds(tokenised: Sequence[str]) -> list[str]:
    """Split ``rich-text format`` into ``rich ##AT##-##AT## text format``: the hyphen becomes a separate token.

    tensor2tensor's ``get_ende_bleu.sh`` and fairseq's ``compound_split_bleu.sh`` do this in Perl on bytes. So does
    this: on characters, the hyphens around a single ``ä`` would come out otherwise, as each match uses up its letters.
    Hyphens that Moses has split already (``rich @-@ text``) become the same: the scripts do not expect them, and would
    make three tokens of each ``@-@``, which always match.
    """
    return [_HYPHEN.sub(_apart, line.encode()).decode() for line in tokenised]


def _apart(hyphen: re.Match[bytes]) -> bytes:
    before, after = hyphen.groups()
    return b"##AT##-##AT##" if before is None else b"%b ##AT##-##AT## %b" % (before, after)
