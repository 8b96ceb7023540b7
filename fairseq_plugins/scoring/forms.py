"""One test set in each form of text that a score reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sacremoses.corpus import NonbreakingPrefixes

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.scoring.metrics import Metric, Reads
from fairseq_plugins.scoring.text import require_equal_counts
from fairseq_plugins.scoring.tokens import moses, moses_name, split_compounds, straight_punctuation

Outputs = Sequence[str] | Sequence[Sequence[str]]
"""The sentences of one run, or of several runs of one method (its seeds), one list each."""


_TOKEN_FILES = "files with --tokenised-hypotheses and --tokenised-references"


@dataclass(frozen=True)
class Text:
    """Translations and references in one form of text: ``systems[name][run][k]`` and ``references[which][k]``."""

    systems: Mapping[str, Sequence[Sequence[str]]]
    references: Sequence[Sequence[str]]


@dataclass
class Forms:
    """Plain text, and its tokens: given, or made by sacremoses if the target language is known.

    Args:
        plain: detokenised text.
        tokens: the same text in Moses tokens, if there are files of it.
        language_pair: such as ``en-de``; None if unset.
    """

    plain: Text
    tokens: Text | None = None
    language_pair: str | None = None
    _made: dict[str, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.language_pair is not None:
            target_language(self.language_pair)
        require_equal_counts(_named(self.plain))
        if not all(any(map(str.strip, one)) for one in self.plain.references):
            raise UserError("a reference contains only empty sentences")
        if self.tokens is not None:
            _require_same_systems(self.plain, self.tokens)
            require_equal_counts(_named(self.tokens, " (tokenised)"))
            first = {"the tokenised text": self.tokens.references[0], "the plain text": self.plain.references[0]}
            require_equal_counts(first)

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return len(self.plain.references[0])

    def why_not(self, reads: Reads) -> str:
        """Return why this form of text is not available; empty if it is, or if it can be made."""
        if reads == "plain" or (self.tokens is not None and reads != "straight compounds"):
            return ""
        # Tokens from files keep the punctuation that they have.
        files = "" if reads == "straight compounds" else _TOKEN_FILES
        if self.language_pair is None:
            return f"it needs --language-pair (as de-en){files and ', or ' + files}"
        language = target_language(self.language_pair)
        known = sorted(set(NonbreakingPrefixes().available_langs.values()))
        if language not in known:
            hint = nearest(language, known)
            give = files and f": give {files}"
            return f"Moses has no rules for '{language}'{hint}, only for {', '.join(known)}{give}"
        return ""

    def tokens_made_by(self, reads: Reads = "tokens") -> str | None:
        """Return the source of the tokens in a form of text; None if there are no tokens."""
        if self.tokens is not None and reads != "straight compounds":
            return "files"
        if self.why_not(reads):
            return None
        return moses_name(target_language(str(self.language_pair)))

    def text(self, reads: Reads) -> Text:
        """Return the test set in one form of text; tokens are made once."""
        if reads == "plain":
            return self.plain
        if reads not in self._made:
            make = {"tokens": self._tokens, "compounds": self._compounds, "straight compounds": self._straight}[reads]
            self._made[reads] = make()
        return self._made[reads]

    def _compounds(self) -> Text:
        return _each(self.text("tokens"), split_compounds)

    def _straight(self) -> Text:
        """Always from the plain text, even if there are token files: the punctuation decides what a token is."""
        language = target_language(str(self.language_pair))
        return _each(self.plain, lambda sentences: split_compounds(moses(straight_punctuation(sentences), language)))

    def _tokens(self) -> Text:
        if self.tokens is not None:
            return self.tokens
        language = target_language(str(self.language_pair))
        return _each(self.plain, lambda sentences: moses(sentences, language))

    def require_readable(self, metric: Metric) -> None:
        """Refuse a score that cannot be computed, or would mean nothing.

        Raises:
            UserError: it reads tokens and there are none, or it splits compounds of French.
        """
        if metric.reads.endswith("compounds") and self.language_pair is not None:
            if target_language(self.language_pair) == "fr":
                raise UserError(f"{metric.name} is for German compounds; no table of {self.language_pair} prints it")
        why = self.why_not(metric.reads)
        if why:
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


def forms_of(
    systems: Mapping[str, Outputs],
    references: Sequence[Sequence[str]],
    *,
    tokenised_systems: Mapping[str, Outputs] | None = None,
    tokenised_references: Sequence[Sequence[str]] | None = None,
    language_pair: str | None = None,
) -> Forms:
    """Make a test set from sentences in memory.

    Raises:
        UserError: nothing to score, unequal counts, tokens of only one side, or tokens of other systems.
    """
    if not systems or not references:
        raise UserError("nothing to score: there must be at least one system and one reference")
    if (tokenised_systems is None) != (tokenised_references is None):
        raise UserError(
            "tokenised hypotheses and tokenised references must be given together: one tokeniser must make both"
        )
    tokens = None
    if tokenised_systems is not None and tokenised_references is not None:
        tokens = Text(_runs(tokenised_systems), list(tokenised_references))
    return Forms(Text(_runs(systems), list(references)), tokens, language_pair)


def _runs(systems: Mapping[str, Outputs]) -> dict[str, list[list[str]]]:
    runs: dict[str, list[list[str]]] = {}
    for name, outputs in systems.items():
        one = all(isinstance(item, str) for item in outputs)
        runs[name] = [list(map(str, outputs))] if one else [list(run) for run in outputs]
    return runs


def _each(text: Text, change: Callable[[Sequence[str]], list[str]]) -> Text:
    systems = {name: [change(run) for run in runs] for name, runs in text.systems.items()}
    return Text(systems, [change(one) for one in text.references])


def _named(text: Text, behind: str = "") -> dict[str, Sequence[str]]:
    """Return all lists of sentences by display name; the first reference comes last, as the others must match it."""
    named: dict[str, Sequence[str]] = {}
    for name, runs in text.systems.items():
        for number, run in enumerate(runs, start=1):
            named[f"{name}{f' (run {number})' if len(runs) > 1 else ''}{behind}"] = run
    for number, one in enumerate(text.references[1:], start=2):
        named[f"reference {number}{behind}"] = one
    named[f"reference{behind}"] = text.references[0]
    return named


def _require_same_systems(plain: Text, tokens: Text) -> None:
    expected = {name: len(runs) for name, runs in plain.systems.items()}
    found = {name: len(runs) for name, runs in tokens.systems.items()}
    if found != expected:
        raise UserError(f"tokenised hypotheses are of {_shown(found)}, hypotheses of {_shown(expected)}")
    if len(tokens.references) != len(plain.references):
        raise UserError(f"{len(tokens.references)} tokenised references for {len(plain.references)} references")


def _shown(runs: Mapping[str, int]) -> str:
    return ", ".join(name if count == 1 else f"{name} ({count} runs)" for name, count in runs.items())
