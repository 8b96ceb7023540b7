"""The settings and sets of a text preparation, all checked before anything is written."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from fairseq_plugins.errors import UserError
from fairseq_plugins.processor import core_count

SET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""The name of a set, which is a part of the names of files and directories."""
_EVERY = re.compile(r"every-([0-9]+)(st|nd|rd|th)?")

LATER = ("joint_codes", "types", "given_truecased", "given_subwords")
"""Settings that the file ``settings`` only has if they differ from the default, so that old directories stay valid."""
UNRECORDED = ("given_tokeniser", "given_lower_case", "codes", "source_dict", "target_dict", "workers")
"""Settings that the file ``settings`` does not have; of files it has a fingerprint."""


def setting(default: Any, help: str, least: int = 1) -> Any:
    """A setting with its default value, its ``--help``, and the minimum of a number."""
    return field(default=default, metadata={"help": help, "least": least})


@dataclass(frozen=True)
class PrepareSettings:
    """Settings of a preparation, each an option of ``fairseq-deep prepare``; a UserError if two contradict."""

    source: str = setting("de", "source language: suffix of the file names, and language of the tokeniser")
    target: str = setting("en", "target language")
    normalise: Literal["none", "train", "all"] = setting(
        "none",
        "normalise punctuation, drop control characters; train: only training text and validation text split off it",
    )
    tokeniser: Literal["moses", "none"] = setting("moses", "tokeniser to apply; none if the text is tokenised already")
    given_truecased: bool = setting(False, "the given text is truecased")
    given_tokeniser: Literal["moses", "none"] | None = setting(
        None, "tokeniser of the given text; needs --tokeniser none; test sets then need --raw"
    )
    given_subwords: Literal["bpe", "sentencepiece", "none"] | None = setting(
        None, "subwords of the given text; needs --tokeniser none --subwords none; test sets then need --raw"
    )
    given_lower_case: bool = setting(False, "the given text is lower-cased")
    aggressive: bool = setting(False, "split words at hyphens")
    escape: bool = setting(True, "escape special characters, such as ' as &apos;")
    lower_case: bool = setting(False, "lower-case the text")
    clean: Literal["tokens", "subwords", "none"] = setting(
        "tokens", "unit in which lengths of training pairs are limited; none: keep all. Given sets are never cleaned"
    )
    min_length: int = setting(1, "minimum length of both sides of a training pair")
    max_length: int = setting(250, "maximum length of both sides of a training pair")
    ratio: float = setting(1.5, "maximum ratio of the lengths of the two sides of a training pair")
    subwords: Literal["bpe", "sentencepiece", "none"] = setting("bpe", "subword model to learn; none: no subwords")
    size: int = setting(32000, "number of BPE merges or SentencePiece pieces")
    joint_codes: bool = setting(
        True, "learn one subword model for both languages; otherwise one per language, of SIZE each"
    )
    codes: Path | None = setting(
        None, "existing BPE codes or SentencePiece model; with --no-joint-codes two files, FILE.SOURCE and FILE.TARGET"
    )
    vocabulary_threshold: int = setting(
        0, "BPE only: split subwords that occur less often in the training text of their language", least=0
    )
    joined: bool = setting(True, "use one dictionary for both languages, independently of --joint-codes")
    types: int = setting(0, "maximum number of types in a dictionary; the rarest are dropped; 0: no limit", least=0)
    source_dict: Path | None = setting(None, "existing dictionary of the source language (dict.LANG.txt)")
    target_dict: Path | None = setting(None, "existing dictionary of the target language")
    workers: int = field(
        default_factory=core_count,
        metadata={"help": "processes; the result is the same for any number (default: all cores)", "least": 1},
    )

    def __post_init__(self) -> None:
        cut, tokenised = self.subwords != "none", self.tokeniser != "none"
        limited = (self.min_length, self.max_length, self.ratio) != (1, 250, 1.5)
        given_dictionary = bool(self.source_dict or self.target_dict)
        contradictions = (
            (self.source == self.target, f"--source and --target are both '{self.source}'; name two languages"),
            (
                self.in_subwords and (tokenised or cut),
                f"--given-subwords {self.given_subwords} needs --tokeniser none --subwords none",
            ),
            (self.given_tokeniser == "moses" and tokenised, "--given-tokeniser moses needs --tokeniser none"),
            (self.vocabulary_threshold and self.subwords != "bpe", "--vocabulary-threshold needs --subwords bpe"),
            (self.codes and not cut, "--codes is set, but --subwords is none"),
            (self.aggressive and not tokenised, "--aggressive needs --tokeniser moses"),
            (limited and self.clean == "none", "--min-length, --max-length or --ratio is set, but --clean is none"),
            (self.ratio < 1, f"--ratio {self.ratio:g} would drop every pair; it must be at least 1"),
            (self.types and given_dictionary, "--types limits a new dictionary, but one is given"),
            (
                self.joined and self.target_dict,
                "--target-dict needs --no-joined; give a joined dictionary as --source-dict",
            ),
        )
        if problems := [message for contradicts, message in contradictions if contradicts]:
            raise UserError(problems)

    @property
    def in_subwords(self) -> bool:
        """Whether the text is given in subwords."""
        return self.given_subwords not in (None, "none")

    @property
    def languages(self) -> tuple[str, str]:
        """Return the source and the target language."""
        return self.source, self.target

    @property
    def languages_by_end(self) -> Mapping[str, Sequence[str]]:
        """Languages of the merges or models, by the suffix of their file names."""
        return {"": self.languages} if self.joint_codes else {f".{language}": [language] for language in self.languages}

    def remembered(self, every: int | None) -> dict[str, str]:
        """The content of the file ``settings`` before the fingerprints of the text; a switch is 0 or 1."""
        defaults = {setting.name: setting.default for setting in fields(self)}
        recorded = [name for name in defaults if name not in UNRECORDED + LATER]
        changed = [name for name in LATER if getattr(self, name) != defaults[name]]
        written = {
            name: f"{value:g}" if isinstance(value, float) else str(int(value) if isinstance(value, bool) else value)
            for name, value in vars(self).items()
        }
        return {
            **{name.upper(): written[name] for name in recorded},
            "valid": "" if every is None else f"every-{every}",
            "moses": "Python",  # Earlier releases could use Moses' Perl.
            **{name.upper(): written[name] for name in changed},
        }


@dataclass(frozen=True)
class HeldOut:
    """A validation or test set that the user gives: prefixes of its text and of its published references, if others."""

    prefix: str
    raw: str | None = None
    changed: Sequence[str] = ()
    """How the text differs from the references."""


@dataclass(frozen=True)
class Sets:
    """The texts to prepare."""

    train: Sequence[str]
    """Prefixes of files to concatenate."""
    every: int | None
    """Every N-th training pair is the validation set; None if one is given."""
    given: Mapping[str, HeldOut]
    """The validation set (``valid``) and test sets, by name."""

    @property
    def tests(self) -> list[str]:
        """Names of the test sets, in their order."""
        return [name for name in self.given if name != "valid"]


def sets_of(
    train: Sequence[str], valid: Sequence[str], tests: Sequence[str], raw: Sequence[str], changed: Sequence[str]
) -> Sets:
    """The sets of the flags, ``NAME=VALUE`` except ``train`` and ``valid``; a UserError for a missing or wrong one."""
    if not train:
        raise UserError("no --train PREFIX given")
    if not valid:
        raise UserError("no --valid PREFIX given (or --valid every-23rd: that part of the training pairs)")
    prefixes: dict[str, str] = {}
    for name, prefix in [*(("valid", prefix) for prefix in valid), *map(_named, tests)]:
        if not SET.fullmatch(name) or name.endswith((".tok", ".raw", ".changed")) or name == "train":
            raise UserError(f"'{name}' cannot be the name of a set; legal: letters, digits, '-', '_' and '.'")
        if name in prefixes:
            raise UserError(f"{name} is given twice; only --train can be repeated")
        prefixes[name] = prefix
    every = every_of(prefixes["valid"])
    if every is not None:
        del prefixes["valid"]
    references, changes = (dict(map(_named, words)) for words in (raw, changed))
    for name in {*references, *changes}.difference(prefixes):
        raise UserError(f"--raw or --changed {name}= is given, but no set {name}")
    given = {
        name: HeldOut(prefix, references.get(name), changes[name].split(",") if name in changes else ())
        for name, prefix in prefixes.items()
    }
    return Sets(train, every, given)


def every_of(valid: str) -> int | None:
    """N of ``every-Nth``; None for a prefix."""
    matched = _EVERY.fullmatch(valid)
    return int(matched[1]) if matched else None


def _named(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    if not value:
        raise UserError(f"'{word}' is not of the form NAME=PREFIX")
    return name, value
