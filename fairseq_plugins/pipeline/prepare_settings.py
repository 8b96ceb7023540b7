"""What a preparation of text is asked for: its settings and its sets, checked as a whole before anything is made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.workspace import Workspace
from fairseq_plugins.text.description import CHANGES

CHOICES: dict[str, Sequence[str]] = {
    "normalise": ("none", "train", "all"),
    "tokeniser": ("moses", "none"),
    "given_tokeniser": ("moses", "none", ""),
    "given_subwords": ("bpe", "sentencepiece", "none", ""),
    "clean": ("tokens", "subwords", "none"),
    "subwords": ("bpe", "sentencepiece", "none"),
}
SWITCHES = ("given_truecased", "given_lower_case", "aggressive", "escape", "lower_case", "joint_codes", "joined")
LEGAL = {**CHOICES, **dict.fromkeys(SWITCHES, ("0", "1"))}
NUMBERS: Mapping[str, str] = {
    **dict.fromkeys(("min_length", "max_length", "size", "workers"), "[1-9][0-9]*"),
    **dict.fromkeys(("vocabulary_threshold", "types"), "0|[1-9][0-9]*"),
    "ratio": r"[1-9][0-9]*(\.[0-9]+)?",
}

_SET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_EVERY = re.compile(r"every-([0-9]+)(st|nd|rd|th)?")


def setting(default: str, help: str) -> str:
    """A setting with its default value and what ``--help`` says of it."""
    return field(default=default, metadata={"help": help})  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Settings:
    """How text is prepared; values are the words that a user writes, as the file ``settings`` keeps them.

    Messages name a setting as that file and the scripts do, in capitals: ``SIZE`` is the flag ``--size``.

    Raises:
        UserError: a value is not legal, or two settings contradict each other.
    """

    source: str = setting("de", "source language: the end of file names, and the rules of the tokeniser")
    target: str = setting("en", "target language")
    normalise: str = setting(
        "none",
        "one form for punctuation, no control characters; train: only in training text, and in what is split off it",
    )
    tokeniser: str = setting("moses", "none: the text has its tokens")
    given_truecased: str = setting("0", "1: first words of sentences have the case that they have inside sentences")
    given_tokeniser: str = setting(
        "", "moses: given in Moses' tokens; goes with TOKENISER=none; test sets then need --raw"
    )
    given_subwords: str = setting(
        "", "given in subwords; goes with TOKENISER=none SUBWORDS=none; test sets then need --raw"
    )
    given_lower_case: str = setting("0", "1: all letters of the given text are small")
    aggressive: str = setting("0", "1: split words at hyphens")
    escape: str = setting("1", "0: no &apos; for ' and the like")
    lower_case: str = setting("0", "1: make all letters small")
    clean: str = setting(
        "tokens", "what the lengths of training pairs count; none: keep all. Given sets are never cleaned"
    )
    min_length: str = setting("1", "of both sides of a training pair")
    max_length: str = setting("250", "of both sides of a training pair")
    ratio: str = setting("1.5", "most tokens of one side of a training pair for each of the other")
    subwords: str = setting("bpe", "none: no subwords")
    size: str = setting("32000", "merges, or pieces of sentencepiece")
    joint_codes: str = setting("1", "0: learn merges, or a model, on each language by itself, SIZE each; 1: together")
    codes: str = setting(
        "", "merges or sentencepiece model to use; with JOINT_CODES=0 two files, CODES.SOURCE and CODES.TARGET"
    )
    vocabulary_threshold: str = setting(
        "0", "with bpe: split subwords that are rarer in their language's training text"
    )
    joined: str = setting("1", "one dictionary for both languages; 0: one for each; goes with either JOINT_CODES")
    types: str = setting("0", "most types of a dictionary, without the rarest; 0: all")
    source_dict: str = setting("", "a dictionary (dict.LANGUAGE.txt) to use instead of making one")
    target_dict: str = setting("", "the same for the target language")
    workers: str = setting("", "processes; the result does not depend on it (default: all cores)")
    moses: str = setting("", "a checkout of Moses: use its Perl tools (default: the environment's MOSES)")

    def __post_init__(self) -> None:
        for name, legal in LEGAL.items():
            value = getattr(self, name)
            if value not in legal:
                raise UserError(f"unknown {name.upper()} '{value}'; legal values: {' '.join(filter(None, legal))}")
        for name, pattern in NUMBERS.items():
            value = getattr(self, name)
            if not re.fullmatch(pattern, value):
                kind = "number" if name == "ratio" else "whole number"
                raise UserError(f"{name.upper()} must be a {kind} of at least 1, not '{value}'")
        for contradicts, message in self._contradictions():
            if contradicts:
                raise UserError(message)

    def _contradictions(self) -> Iterable[tuple[bool, str]]:
        yield self.source == self.target, f"SOURCE and TARGET are both '{self.source}'; name two languages"
        cut, tokenised = self.subwords != "none", self.tokeniser != "none"
        yield (
            self.in_subwords and (tokenised or cut),
            f"GIVEN_SUBWORDS={self.given_subwords} goes with TOKENISER=none SUBWORDS=none",
        )
        yield (
            self.given_tokeniser == "moses" and tokenised,
            f"GIVEN_TOKENISER={self.given_tokeniser} goes with TOKENISER=none: the text has its tokens",
        )
        yield (
            self.vocabulary_threshold != "0" and self.subwords != "bpe",
            "VOCABULARY_THRESHOLD goes with SUBWORDS=bpe",
        )
        yield bool(self.codes) and not cut, "CODES is given, but SUBWORDS=none"
        yield self.joint_codes == "0" and not cut, "JOINT_CODES=0 is given, but SUBWORDS=none"
        yield (
            not tokenised and (self.aggressive, self.escape) != ("0", "1"),
            "AGGRESSIVE=1 and ESCAPE=0 go with TOKENISER=moses",
        )
        yield (
            self.clean == "none" and (self.min_length, self.max_length, self.ratio) != ("1", "250", "1.5"),
            "MIN_LENGTH, MAX_LENGTH or RATIO is given, but CLEAN=none",
        )
        yield (
            self.types != "0" and bool(self.source_dict or self.target_dict),
            "TYPES is given, but so is a dictionary",
        )
        yield (
            self.joined == "1" and bool(self.target_dict),
            "TARGET_DICT is given, but JOINED=1: one dictionary is SOURCE_DICT",
        )

    @property
    def in_subwords(self) -> bool:
        """Whether the text comes in subwords."""
        return self.given_subwords not in ("", "none")

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target

    @property
    def languages_by_end(self) -> Mapping[str, Sequence[str]]:
        """By what stands behind the names of merges or models: the languages that they are for."""
        return {"": self.languages} if self.joint_codes == "1" else {f".{each}": [each] for each in self.languages}

    def remembered(self, every: int | None) -> dict[str, str]:
        """What the file ``settings`` holds before the fingerprints of the text.

        Settings that came later than others are in it only where they are chosen: old directories stay valid.
        """
        names = ["source", "target", "normalise", "tokeniser", "aggressive", "escape", "lower_case", "clean"]
        names += ["min_length", "max_length", "ratio", "subwords", "size", "vocabulary_threshold", "joined"]
        later = {"joint_codes": "1", "types": "0", "given_truecased": "0", "given_subwords": ""}
        return {
            **{name.upper(): getattr(self, name) for name in names},
            "valid": "" if every is None else f"every-{every}",
            "moses": "Perl" if self.moses else "Python",
            **{name.upper(): getattr(self, name) for name, usual in later.items() if getattr(self, name) != usual},
        }


@dataclass(frozen=True)
class HeldOut:
    """A set for validation or test that was given as such.

    Args:
        prefix: of its text, to be tokenised.
        raw: of its references as published, where they differ.
        changed: how the text differs from the references.
    """

    prefix: str
    raw: str | None = None
    changed: Sequence[str] = ()


@dataclass(frozen=True)
class Sets:
    """The texts to prepare.

    Args:
        train: prefixes of files that are put behind one another.
        every: every N-th training pair is the validation set; None where one is given.
        given: the sets for validation (``valid``) and test, by name.
    """

    train: Sequence[str]
    every: int | None
    given: Mapping[str, HeldOut]

    @property
    def tests(self) -> list[str]:
        """Names of the test sets, in their order."""
        return [name for name in self.given if name != "valid"]


def sets_of(
    train: Sequence[str], valid: Sequence[str], tests: Sequence[str], raw: Sequence[str], changed: Sequence[str]
) -> Sets:
    """The sets that flags ask for; all but ``train`` and ``valid`` are words ``NAME=VALUE``.

    Raises:
        UserError: a set is missing, given twice or misnamed.
    """
    prefixes = _prefixes([*(f"valid={prefix}" for prefix in valid), *tests])
    if not train:
        raise UserError("no train=PREFIX given")
    if "valid" not in prefixes:
        raise UserError("no valid=PREFIX given (or valid=every-23rd: that part of the training pairs)")
    every = every_of(prefixes["valid"])
    if every is not None:
        del prefixes["valid"]
    references = dict(map(_named, raw))
    for name in references:
        if name not in prefixes:
            raise UserError(f"{name}.raw= is given without {name}=")
    changes = _changes(changed, references)
    given = {name: HeldOut(prefix, references.get(name), changes.get(name, ())) for name, prefix in prefixes.items()}
    return Sets(train, every, given)


def every_of(valid: str) -> int | None:
    """N of ``every-Nth``; None for a prefix.

    Raises:
        UserError: no training pair would be left.
    """
    found = _EVERY.fullmatch(valid)
    if found and int(found[1]) < 2:
        raise UserError(f"valid={valid} would leave no training pair")
    return int(found[1]) if found else None


def _prefixes(words: Sequence[str]) -> dict[str, str]:
    prefixes: dict[str, str] = {}
    for name, prefix in map(_named, words):
        if not _SET.fullmatch(name) or name.endswith((".tok", ".raw", ".changed")) or name == "train":
            raise UserError(
                f"'{name}' cannot be the name of a set: letters, digits, '-', '_' and '.', not .tok at the end"
            )
        if name in prefixes:
            raise UserError(f"{name}= is given twice; only train= may be")
        prefixes[name] = prefix
    return prefixes


def _changes(words: Sequence[str], references: Mapping[str, str]) -> dict[str, list[str]]:
    changes = {name: kinds.split(",") for name, kinds in map(_named, words)}
    for name, kinds in changes.items():
        if name not in references:
            raise UserError(f"{name}.changed= is given without {name}.raw=")
        for kind in kinds:
            if kind not in CHANGES:
                raise UserError(f"unknown {name}.changed '{kind}'; legal values: {' '.join(CHANGES)}")
    return changes


def _named(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    if not value:
        raise UserError(f"'{word}' is no NAME=PREFIX")
    return name, value


def require_only(meaning: str, settings: Settings, directory: Path, every: int | None) -> None:
    """Settings that are part of what a name means are not changed by the environment; ``directory`` has no others.

    Args:
        meaning: what has these settings, such as ``WMT'14 English-French``.
        settings: those that it means.
        directory: where the result goes.
        every: as in :class:`Sets`.

    Raises:
        UserError: a variable of the environment, or the file ``settings`` of ``directory``, has another value.
    """
    for each in fields(settings):
        name, value = each.name.upper(), getattr(settings, each.name)
        chosen = os.environ.get(name)
        if chosen and chosen != value:
            raise UserError(
                f"{name}={chosen} is given, but {meaning} means {name}={value or '(none)'}; scripts/prepare.sh takes "
                "text of your own with any setting"
            )
    known = {*settings.remembered(every), "JOINT_CODES", "TYPES", "GIVEN_TRUECASED", "GIVEN_SUBWORDS"}
    Workspace(directory).require(settings.remembered(every), only=known)
