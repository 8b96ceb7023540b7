"""The text to score: sentence k of a translation against sentence k of a reference, in each form that a score reads.

Older papers score Moses tokens, with compounds split at hyphens, with straight quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.tools.scoring.metrics import Reads

_HYPHEN = re.compile(rb"(?<!\S)@-@(?!\S)|(\S)-(\S)")
Outputs = Sequence[str] | Sequence[Sequence[str]]
"""The sentences of one run, or of several runs of one method (its seeds), one list each."""


@dataclass(frozen=True)
class Text:
    """Translations and references in one form of text: ``systems[name][run][k]`` and ``references[which][k]``."""

    systems: Mapping[str, Sequence[Sequence[str]]]
    references: Sequence[Sequence[str]]

    @classmethod
    def of(cls, systems: Mapping[str, Outputs], references: Sequence[Sequence[str]]) -> Text:
        """Put sentences in memory together; a system may have one run or a list of them."""
        if not systems or not references:
            raise UserError("a system and a reference are needed, and there is none")
        if any(isinstance(side, str) for side in (*systems.values(), *references)):
            raise UserError("give lists of sentences, not a text")
        runs: dict[str, list[list[str]]] = {}
        for name, outputs in systems.items():
            is_one = all(isinstance(sentence, str) for sentence in outputs)
            runs[name] = [list(map(str, outputs))] if is_one else [list(run) for run in outputs]
        return cls(runs, list(references))

    def every_run(self) -> dict[str, Sequence[str]]:
        """Return the outputs by display name."""
        return {
            f"{name}, run {number}" if len(runs) > 1 else name: run
            for name, runs in self.systems.items()
            for number, run in enumerate(runs, start=1)
        }

    def require_equal_counts(self, kind: str = "") -> None:
        """Check that all texts have as many sentences as the first reference; ``kind`` is put before "references"."""
        first, *others = self.references
        texts = {**self.every_run(), **{f"reference {number}": other for number, other in enumerate(others, start=2)}}
        problems = []
        for name, sentences in texts.items():
            if len(sentences) != len(first):
                counts = f"{name} has {len(sentences)} lines, the {kind}references {len(first)}"
                problems.append(f"{counts}: sentence k must be the translation of sentence k")
        if problems:
            raise UserError(problems)


@dataclass
class Forms:
    """Plain text, and its tokens: given, or made by sacremoses if the target language is known.

    Args:
        plain: detokenised text.
        tokens: the same text in Moses tokens, if it is given.
        language_pair: such as ``en-de``; None if unset.

    Raises:
        UserError: unequal counts, or only empty references.
    """

    plain: Text
    tokens: Text | None = None
    language_pair: str | None = None
    _target: str = field(init=False, default="")
    _made: dict[str, Text] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.language_pair is not None:
            source, dash, self._target = self.language_pair.partition("-")
            if not (source and dash and self._target) or "-" in self._target:
                raise UserError(f"--language-pair must be SOURCE-TARGET, such as en-de, not '{self.language_pair}'")
        self.plain.require_equal_counts()
        if not all(any(map(str.strip, reference)) for reference in self.plain.references):
            raise UserError("a reference contains only empty sentences")
        if self.tokens is not None:
            self.tokens.require_equal_counts("tokenised ")
            Text(self.tokens.systems, self.plain.references).require_equal_counts()

    def why_not(self, reads: Reads) -> str:
        """Return why this form of text is not available; empty if it is, or if it can be made."""
        if reads == "plain" or self._given(reads):
            return ""
        if not self._target:
            return "it needs --language-pair (such as de-en)"
        from sacremoses.corpus import NonbreakingPrefixes  # its import takes half a second

        languages = set(NonbreakingPrefixes().available_langs.values())
        return "" if self._target in languages else unknown_name("language of Moses", self._target, languages)

    def _given(self, reads: Reads) -> bool:
        """Whether the tokens are given; they keep the punctuation that they have."""
        return self.tokens is not None and reads != "straight compounds"

    def made_from(self, reads: Reads) -> str:
        """Return the end of a signature that says how this form of text was made; empty for plain text."""
        if reads == "plain":
            return ""
        sacremoses = f"sacremoses {version('sacremoses')} ({self._target})"
        punctuation = "|punctuation:ASCII" if reads == "straight compounds" else ""
        compounds = "|compounds:split" if reads.endswith("compounds") else ""
        return f"|tokens:{'files' if self._given(reads) else sacremoses}{punctuation}{compounds}"

    def text(self, reads: Reads) -> Text:
        """Return the test set in one form of text; tokens are made once."""
        if reads == "plain":
            return self.plain
        if reads == "tokens" and self.tokens is not None:
            return self.tokens
        if reads not in self._made:
            # Tokens depend on punctuation, so straight punctuation needs the plain text.
            text = self.text("tokens") if reads == "compounds" else self.plain
            systems = {name: [self._changed(run, reads) for run in runs] for name, runs in text.systems.items()}
            self._made[reads] = Text(systems, [self._changed(reference, reads) for reference in text.references])
        return self._made[reads]

    def _changed(self, sentences: Sequence[str], reads: Reads) -> list[str]:
        if reads == "compounds":
            return split_compounds(sentences)
        if reads == "tokens":
            return moses(sentences, self._target)
        # Moses' replace-unicode-punctuation.perl maps Unicode quotes, commas etc. to ASCII like this.
        from sacremoses import MosesPunctNormalizer

        straight = list(map(MosesPunctNormalizer().replace_unicode_punct, sentences))
        return split_compounds(moses(straight, self._target))


def moses(sentences: Sequence[str], language: str) -> list[str]:
    """Return Moses tokens of plain text, separated by spaces; as for fairseq's IWSLT'14 and Google's WMT data, hyphens
    are left in their words. Not escaped: BLEU counts ``&apos;s`` and ``'s`` alike.

    sacremoses differs from Moses' Perl of today in the last full stop of one to three sentences in a thousand. Here
    that is wanted: it is Moses before November 2018, with which newstest2014 has the 64,496 tokens of the published
    tables.
    """  # noqa: D205
    from fairseq_plugins.tools.text.moses import Splitter

    tokeniser = Splitter(language, last_full_stop=False)
    return [str(tokeniser.tokenize(sentence, return_str=True, escape=False)) for sentence in sentences]


def split_compounds(tokenised: Sequence[str]) -> list[str]:
    """Split ``rich-text format`` into ``rich ##AT##-##AT## text format``: the hyphen becomes a separate token.

    tensor2tensor's ``get_ende_bleu.sh`` and fairseq's ``compound_split_bleu.sh`` do this in Perl on bytes. So does
    this: on characters, the hyphens around a single ``ä`` would come out otherwise, as each match uses up its letters.
    Hyphens that Moses has split already (``rich @-@ text``) become the same: the scripts do not expect them, and would
    make three tokens of each ``@-@``, which always match.
    """

    def apart(hyphen: re.Match[bytes]) -> bytes:
        before, after = hyphen.groups()
        return b"##AT##-##AT##" if before is None else b"%b ##AT##-##AT## %b" % (before, after)

    return [_HYPHEN.sub(apart, line.encode()).decode() for line in tokenised]
