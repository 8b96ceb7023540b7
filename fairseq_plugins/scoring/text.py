"""The text to score: sentence k of a translation against sentence k of a reference, in each form that a score reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sacremoses.corpus import NonbreakingPrefixes

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.lines import read_lines
from fairseq_plugins.scoring.metrics import Metric, Reads
from fairseq_plugins.scoring.tokens import moses, moses_name, split_compounds, straight_punctuation

LOST_BY_BATCHES = 7
"""Maximum number of sentences that fairseq's batches of a multiple of 8 leave out of one decoding."""
Outputs = Sequence[str] | Sequence[Sequence[str]]
"""The sentences of one run, or of several runs of one method (its seeds), one list each."""


def read_sentences(path: Path) -> list[str]:
    """Read the sentences of a UTF-8 file, which may be compressed (``.gz``); empty lines are empty sentences.

    Raises:
        UserError: no such file, not readable, without a line, or not UTF-8 (with the number of the first such line).
    """
    return list(read_lines(path))


def require_equal_counts(texts: Mapping[str, Sequence[str]]) -> None:
    """Check that all ``texts`` (by display name) have the same number of sentences.

    Raises:
        UserError: they differ; the message names every text that differs from the last one, with both counts.
    """
    *others, last = texts
    expected = len(texts[last])
    problems = []
    for name in others:
        count = len(texts[name])
        few = 0 < expected - count <= LOST_BY_BATCHES
        lost = f" ({expected - count} missing: were they dropped in decoding?)" if few else ""
        if count != expected:
            problems.append(
                f"{name} has {_lines(count)}, {last} has {_lines(expected)}: sentence k must be the translation of "
                f"sentence k{lost}"
            )
    if problems:
        raise UserError(problems)


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"


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

    def require_equal_counts(self, behind: str = "") -> None:
        """Check the number of sentences of every output and reference; ``behind`` is put behind their names.

        Raises:
            UserError: they differ.
        """
        first, *others = self.references
        texts = {f"{name}{behind}": run for name, run in self.every_run().items()}
        texts |= {f"reference {number}{behind}": text for number, text in enumerate(others, start=2)}
        require_equal_counts({**texts, f"reference{behind}": first})


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
    _made: dict[str, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.language_pair is not None:
            target_language(self.language_pair)
        self.plain.require_equal_counts()
        if not all(any(map(str.strip, reference)) for reference in self.plain.references):
            raise UserError("a reference contains only empty sentences")
        if self.tokens is not None:
            _require_same_systems(self.plain, self.tokens)
            self.tokens.require_equal_counts(" (tokenised)")
            first = {"the tokenised text": self.tokens.references[0], "the plain text": self.plain.references[0]}
            require_equal_counts(first)

    def why_not(self, reads: Reads) -> str:
        """Return why this form of text is not available; empty if it is, or if it can be made."""
        if reads == "plain" or self._has_files(reads):
            return ""
        # Tokens from files keep the punctuation that they have.
        needs_plain = reads == "straight compounds"
        files = "" if needs_plain else "files with --tokenised-hypotheses and --tokenised-references"
        if self.language_pair is None:
            return f"it needs --language-pair (as de-en){files and ', or ' + files}"
        language = target_language(self.language_pair)
        languages = sorted(set(NonbreakingPrefixes().available_langs.values()))
        if language in languages:
            return ""
        give = files and f": give {files}"
        return (
            f"Moses has no rules for '{language}'{nearest(language, languages)}, only for {', '.join(languages)}{give}"
        )

    def _has_files(self, reads: Reads) -> bool:
        return self.tokens is not None and reads != "straight compounds"

    def tokens_made_by(self, reads: Reads = "tokens") -> str | None:
        """Return the source of the tokens in a form of text; None if there are no tokens."""
        if self._has_files(reads):
            return "files"
        return None if self.why_not(reads) else moses_name(target_language(str(self.language_pair)))

    def text(self, reads: Reads) -> Text:
        """Return the test set in one form of text; tokens are made once."""
        if reads not in self._made:
            self._made[reads] = self._make(reads)
        return self._made[reads]

    def _make(self, reads: Reads) -> Text:
        if reads == "plain":
            return self.plain
        if reads == "compounds":
            return self.text("tokens").changed(split_compounds)
        if reads == "tokens" and self.tokens is not None:
            return self.tokens
        language = target_language(str(self.language_pair))
        if reads == "tokens":
            return self.plain.changed(lambda sentences: moses(sentences, language))
        # The plain text is read even if there are token files: the punctuation decides what a token is.
        return self.plain.changed(lambda sentences: split_compounds(moses(straight_punctuation(sentences), language)))

    def require_readable(self, metric: Metric) -> None:
        """Refuse a score that cannot be computed, or would mean nothing.

        Raises:
            UserError: it reads tokens and there are none, or it splits compounds of French.
        """
        if metric.reads.endswith("compounds") and self.language_pair is not None:
            if target_language(self.language_pair) == "fr":
                raise UserError(f"{metric.name} is for German compounds; no table of {self.language_pair} prints it")
        if why := self.why_not(metric.reads):
            raise UserError(f"{metric.name}: {why}")


def target_language(pair: str) -> str:
    """Return ``de`` of ``en-de``.

    Raises:
        UserError: ``pair`` is not of this form.
    """
    source, dash, target = pair.partition("-")
    if not (source and dash and target) or "-" in target:
        raise UserError(f"--language-pair must be SOURCE-TARGET, as en-de, not '{pair}'")
    return target


def _require_same_systems(plain: Text, tokens: Text) -> None:
    descriptions = [
        ", ".join(name if len(runs) == 1 else f"{name} ({len(runs)} runs)" for name, runs in text.systems.items())
        for text in (tokens, plain)
    ]
    ours, theirs = ({name: len(runs) for name, runs in text.systems.items()} for text in (plain, tokens))
    if ours != theirs:
        raise UserError(f"tokenised hypotheses are of {descriptions[0]}, hypotheses of {descriptions[1]}")
    if len(tokens.references) != len(plain.references):
        raise UserError(f"{len(tokens.references)} tokenised references for {len(plain.references)} references")
