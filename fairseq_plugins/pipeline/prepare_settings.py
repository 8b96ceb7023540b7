"""The settings and sets of a text preparation, all checked before anything is written."""

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
    """A setting with its default value and its ``--help``."""
    return field(default=default, metadata={"help": help})  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Settings:
    """Settings of a preparation; values are strings as the user writes them and as the file ``settings`` keeps them.

    Messages use the names of that file and of the scripts, in capitals: ``SIZE`` is the flag ``--size``.

    Raises:
        UserError: a value is not legal, or two settings contradict each other.
    """

    source: str = setting("de", "source language: the end of file names, and the rules of the tokeniser")
    target: str = setting("en", "target language")
    normalise: str = setting(
        "none",
        "normalise punctuation, drop control characters; train: only in training text, and in what is split off it",
    )
    tokeniser: str = setting("moses", "none: the text is tokenised already")
    given_truecased: str = setting("0", "1: the given text is truecased")
    given_tokeniser: str = setting("", "moses: given in Moses' tokens; needs TOKENISER=none; test sets then need --raw")
    given_subwords: str = setting(
        "", "given in subwords; needs TOKENISER=none SUBWORDS=none; test sets then need --raw"
    )
    given_lower_case: str = setting("0", "1: the given text is lower-cased")
    aggressive: str = setting("0", "1: split words at hyphens")
    escape: str = setting("1", "1: escape special characters, such as ' as &apos;")
    lower_case: str = setting("0", "1: lower-case the text")
    clean: str = setting(
        "tokens", "unit of the lengths of training pairs; none: keep all. Given sets are never cleaned"
    )
    min_length: str = setting("1", "minimum length of both sides of a training pair")
    max_length: str = setting("250", "maximum length of both sides of a training pair")
    ratio: str = setting("1.5", "maximum length of one side of a training pair over that of the other")
    subwords: str = setting("bpe", "none: no subwords")
    size: str = setting("32000", "merges, or pieces of sentencepiece")
    joint_codes: str = setting("1", "0: learn merges, or a model, for each language separately, SIZE each; 1: together")
    codes: str = setting(
        "", "merges or sentencepiece model to use; with JOINT_CODES=0 two files, CODES.SOURCE and CODES.TARGET"
    )
    vocabulary_threshold: str = setting(
        "0", "with bpe: split subwords that are rarer in their language's training text"
    )
    joined: str = setting("1", "one dictionary for both languages; 0: one for each; independent of JOINT_CODES")
    types: str = setting("0", "maximum types of a dictionary, the rarest are dropped; 0: no limit")
    source_dict: str = setting("", "an existing dictionary (dict.LANGUAGE.txt) to use")
    target_dict: str = setting("", "the same for the target language")
    workers: str = setting("", "processes; the result is the same for any number (default: all cores)")
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
            f"GIVEN_SUBWORDS={self.given_subwords} needs TOKENISER=none SUBWORDS=none",
        )
        yield (
            self.given_tokeniser == "moses" and tokenised,
            f"GIVEN_TOKENISER={self.given_tokeniser} needs TOKENISER=none: the text is tokenised already",
        )
        yield (
            self.vocabulary_threshold != "0" and self.subwords != "bpe",
            "VOCABULARY_THRESHOLD needs SUBWORDS=bpe",
        )
        yield bool(self.codes) and not cut, "CODES is set, but SUBWORDS=none"
        yield self.joint_codes == "0" and not cut, "JOINT_CODES=0 is set, but SUBWORDS=none"
        yield (
            not tokenised and (self.aggressive, self.escape) != ("0", "1"),
            "AGGRESSIVE=1 and ESCAPE=0 need TOKENISER=moses",
        )
        yield (
            self.clean == "none" and (self.min_length, self.max_length, self.ratio) != ("1", "250", "1.5"),
            "MIN_LENGTH, MAX_LENGTH or RATIO is set, but CLEAN=none",
        )
        yield (
            self.types != "0" and bool(self.source_dict or self.target_dict),
            "TYPES and a given dictionary (SOURCE_DICT, TARGET_DICT) are mutually exclusive",
        )
        yield (
            self.joined == "1" and bool(self.target_dict),
            "TARGET_DICT needs JOINED=0; give a joined dictionary as SOURCE_DICT",
        )

    @property
    def in_subwords(self) -> bool:
        """Whether the text is given in subwords."""
        return self.given_subwords not in ("", "none")

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target

    @property
    def languages_by_end(self) -> Mapping[str, Sequence[str]]:
        """Languages of the merges or models, by the suffix of their file names."""
        return {"": self.languages} if self.joint_codes == "1" else {f".{each}": [each] for each in self.languages}

    def remembered(self, every: int | None) -> dict[str, str]:
        """The content of the file ``settings`` before the fingerprints of the text.

        Newer settings are only in it if they differ from the default, so old directories stay valid.
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
    """A validation or test set that the user gives.

    Args:
        prefix: of its text, to be tokenised.
        raw: prefix of its published references, if they differ.
        changed: how the text differs from the references.
    """

    prefix: str
    raw: str | None = None
    changed: Sequence[str] = ()


@dataclass(frozen=True)
class Sets:
    """The texts to prepare.

    Args:
        train: prefixes of files to concatenate.
        every: every N-th training pair is the validation set; None if one is given.
        given: the validation set (``valid``) and test sets, by name.
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
    """The sets of the flags; all except ``train`` and ``valid`` have the form ``NAME=VALUE``.

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
            raise UserError(f"{name}.raw= needs {name}=")
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
                f"'{name}' cannot be the name of a set; legal: letters, digits, '-', '_' and '.', no .tok at the end"
            )
        if name in prefixes:
            raise UserError(f"{name}= is given twice; only train= can be repeated")
        prefixes[name] = prefix
    return prefixes


def _changes(words: Sequence[str], references: Mapping[str, str]) -> dict[str, list[str]]:
    changes = {name: kinds.split(",") for name, kinds in map(_named, words)}
    for name, kinds in changes.items():
        if name not in references:
            raise UserError(f"{name}.changed= needs {name}.raw=")
        for kind in kinds:
            if kind not in CHANGES:
                raise UserError(f"unknown {name}.changed '{kind}'; legal values: {' '.join(CHANGES)}")
    return changes


def _named(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    if not value:
        raise UserError(f"'{word}' is not of the form NAME=PREFIX")
    return name, value


def require_only(meaning: str, settings: Settings, directory: Path, every: int | None) -> None:
    """Check that neither the environment nor ``directory`` changes the settings of a published corpus.

    Args:
        meaning: name of the corpus, such as ``WMT'14 English-French``.
        settings: of this corpus.
        directory: of the result.
        every: as in :class:`Sets`.

    Raises:
        UserError: a variable of the environment, or the file ``settings`` of ``directory``, has another value.
    """
    for each in fields(settings):
        name, value = each.name.upper(), getattr(settings, each.name)
        chosen = os.environ.get(name)
        if chosen and chosen != value:
            raise UserError(
                f"{name}={chosen} is set, but {meaning} means {name}={value or '(none)'}; for other settings use "
                "scripts/prepare.sh"
            )
    known = {*settings.remembered(every), "JOINT_CODES", "TYPES", "GIVEN_TRUECASED", "GIVEN_SUBWORDS"}
    Workspace(directory).require(settings.remembered(every), only=known)
