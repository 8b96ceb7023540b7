"""The text to score: sentence k of a translation against sentence k of a reference, in each form that a score reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from sacremoses.corpus import NonbreakingPrefixes

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.lines import read_lines
from fairseq_plugins.scoring.metrics import Reads
from fairseq_plugins.scoring.tokens import moses, split_compounds, straight_punctuation

LOST_BY_BATCHES = 7
"""Maximum number of sentences that fairseq's batches of a multiple of 8 leave out of one decoding."""
Outputs = Sequence[str] | Sequence[Sequence[str]]
"""The sentences of one run, or of several runs of one method (its seeds), one list each."""


def read_sentences(path: Path) -> list[str]:
    """Read the sentences of a file as :func:`~fairseq_plugins.lines.read_lines`; empty lines are empty sentences."""
    return list(read_lines(path))


@dataclass(frozen=True)
class Text:
    """Translations and references in one form of text: ``systems[name][run][k]`` and ``references[which][k]``."""

    systems: Mapping[str, Sequence[Sequence[str]]]
    references: Sequence[Sequence[str]]

    @classmethod
    def of(cls, systems: Mapping[str, Outputs], references: Sequence[Sequence[str]]) -> Text:
        """Put sentences in memory together; a system may have one run or a list of them.

        Raises:
            UserError: there is nothing to score.
        """
        if not systems or not references:
            raise UserError("nothing to score: there must be at least one system and one reference")
        runs: dict[str, list[list[str]]] = {}
        for name, outputs in systems.items():
            is_one = all(isinstance(sentence, str) for sentence in outputs)
            runs[name] = [list(map(str, outputs))] if is_one else [list(run) for run in outputs]
        return cls(runs, list(references))

    def changed(self, change: Callable[[Sequence[str]], list[str]]) -> Text:
        """Return the text with ``change`` made to every list of sentences."""
        systems = {name: [change(run) for run in runs] for name, runs in self.systems.items()}
        return Text(systems, [change(reference) for reference in self.references])

    def every_run(self) -> dict[str, Sequence[str]]:
        """Return the outputs by display name."""
        return {
            f"{name}, run {number}" if len(runs) > 1 else name: run
            for name, runs in self.systems.items()
            for number, run in enumerate(runs, start=1)
        }

    def require_equal_counts(self, kind: str = "") -> None:
        """Check that every output and reference has as many sentences as the first reference.

        Raises:
            UserError: they differ; the message names every text that differs, with both counts. ``kind`` is put before
                "references".
        """
        first, *others = self.references
        texts = {**self.every_run(), **{f"reference {number}": other for number, other in enumerate(others, start=2)}}
        problems = []
        for name, sentences in texts.items():
            if missing := len(first) - len(sentences):
                lost = f" ({missing} missing: were they dropped in decoding?)" if 0 < missing <= LOST_BY_BATCHES else ""
                problems.append(
                    f"{name} has {len(sentences)} lines, the {kind}references {len(first)}: sentence k must be the "
                    f"translation of sentence k{lost}"
                )
        if problems:
            raise UserError(problems)


@dataclass
class Forms:
    """Plain text, and its tokens: given, or made by sacremoses if the target language is known.

    Args:
        plain: detokenised text.
        tokens: the same text in Moses tokens, if there are files of it.
        language_pair: such as ``en-de``; None if unset.

    Raises:
        UserError: unequal counts, only empty references, or tokens of other systems.
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
                raise UserError(f"--language-pair must be SOURCE-TARGET, as en-de, not '{self.language_pair}'")
        self.plain.require_equal_counts()
        if not all(any(map(str.strip, reference)) for reference in self.plain.references):
            raise UserError("a reference contains only empty sentences")
        if self.tokens is not None:
            self.tokens.require_equal_counts("tokenised ")
            ours, theirs = (
                f"{', '.join(sorted(text.every_run()))}, and {len(text.references)} x {len(text.references[0])} lines "
                "of references"
                for text in (self.plain, self.tokens)
            )
            if ours != theirs:
                raise UserError(f"the tokenised text has {theirs}, the plain text {ours}")

    def why_not(self, reads: Reads) -> str:
        """Return why this form of text is not available; empty if it is, or if it can be made."""
        if reads == "plain" or self._has_files(reads):
            return ""
        # Tokens from files keep the punctuation that they have.
        files = "files with --tokenised-hypotheses and --tokenised-references"
        instead = "" if reads == "straight compounds" else f", or {files}"
        if not self._target:
            return f"it needs --language-pair (as de-en){instead}"
        languages = sorted(set(NonbreakingPrefixes().available_langs.values()))
        if self._target in languages:
            return ""
        near = nearest(self._target, languages)
        return f"Moses has no rules for '{self._target}'{near}; it needs one of {', '.join(languages)}{instead}"

    def _has_files(self, reads: Reads) -> bool:
        return self.tokens is not None and reads != "straight compounds"

    def made_from(self, reads: Reads) -> str:
        """Return the end of a signature that says how this form of text was made; empty for plain text."""
        if reads == "plain":
            return ""
        sacremoses = f"sacremoses {version('sacremoses')} ({self._target})"
        punctuation = "|punctuation:ASCII" if reads == "straight compounds" else ""
        compounds = "|compounds:split" if reads.endswith("compounds") else ""
        return f"|tokens:{'files' if self._has_files(reads) else sacremoses}{punctuation}{compounds}"

    def text(self, reads: Reads) -> Text:
        """Return the test set in one form of text; tokens are made once."""
        if reads == "plain":
            return self.plain
        if reads == "tokens" and self.tokens is not None:
            return self.tokens
        if reads not in self._made:
            change = {
                "tokens": lambda sentences: moses(sentences, self._target),
                "compounds": split_compounds,
                "straight compounds": lambda sentences: split_compounds(
                    moses(straight_punctuation(sentences), self._target)
                ),
            }[reads]
            # Punctuation decides what a token is, so straight punctuation needs the plain text.
            text = self.text("tokens") if reads == "compounds" else self.plain
            self._made[reads] = text.changed(change)
        return self._made[reads]
