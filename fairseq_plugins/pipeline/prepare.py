"""``fairseq-deep prepare``: from parallel sentences to a directory to train on, in one pass.

Check, tokenise, clean, split off a validation set, learn and apply subwords, binarise: :meth:`Preparation.run` calls
the stages in this order. Each is a function of :mod:`fairseq_plugins.text`, or fairseq's own command.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum, write_whole
from fairseq_plugins.lines import in_step
from fairseq_plugins.options import ScriptParser
from fairseq_plugins.pipeline.commands import Commands, interruptible
from fairseq_plugins.pipeline.prepare_settings import LATER, Sets, Settings, every_of, sets_of
from fairseq_plugins.pipeline.workspace import SETTINGS, Workspace, remove, say
from fairseq_plugins.text import bpe, description, join, parallel, pieces
from fairseq_plugins.text.command import as_option, value_of
from fairseq_plugins.text.tokenise import tokenise

Stage = Callable[[Path], None]
"""Writes one file or directory to the path that it receives."""
State = tuple[int, ...]
"""What changes with the content of a file: inode, size, times."""
FINGERPRINT = 16
"""Digits of a text's SHA-256 in the settings of a directory; another number would refuse directories that exist."""


class Preparation:
    """Prepares one directory.

    Args:
        directory: the result.
        sets: the texts.
        settings: of the preparation.
        dry_run: only print the commands.

    Raises:
        UserError: a file is missing or empty, or where results are written; sets and settings contradict each other.
    """

    def __init__(self, directory: Path, sets: Sets, settings: Settings, *, dry_run: bool = False) -> None:
        self.directory = directory
        self.text = directory / "text"
        self.work = directory / "work"
        # Text given in subwords is stored here until its tokens are made from it.
        self.tokens = self.work / "given" if settings.in_subwords else self.text
        self.sets = sets
        self.settings = settings
        self.dry_run = dry_run
        self.commands = Commands(dry_run=dry_run)
        self.workspace = Workspace(directory, dry_run=dry_run)
        self.make = self.workspace.make
        self.step = self.commands.step
        if settings.given_tokeniser == "moses" or settings.in_subwords:
            for name in sets.tests:
                if sets.given[name].raw is None:
                    raise UserError(
                        f"no --raw {name}=PREFIX given: the text of {name} is in tokens or subwords, but scores need "
                        "it as published"
                    )
        self.training = {
            language: [_file(prefix, language) for prefix in sets.train] for language in settings.languages
        }
        self._states: dict[Path, tuple[State, str]] = {}
        self.fingerprints = [(name, self._fingerprint(path)) for name, path in self._files()]

    def run(self) -> None:
        """Run all stages; finished ones are skipped.

        Raises:
            UserError: bad text, other settings than before, another job in the directory, a failed step.
        """
        with self.workspace.claimed():
            # Settings contain fingerprints of the text. They are only written for checked text, so after bad text is
            # corrected the same directory can be used.
            if not (self.directory / SETTINGS).is_file():
                self._check_texts()
                self._require_unchanged(self._states)
            self.workspace.remember([*self.settings.remembered(self.sets.every).items(), *self.fingerprints])
            self._describe()
            if is_prepared(self.directory) and not self.dry_run:
                remove(self.work)
                say(f"{self.directory}: prepared already")
                return
            for name in self.sets.given:
                self._tokenise_given(name)
            source = self._tokenise_and_clean_training()
            self._learn_subwords(source)
            for name in ["train"] if self.sets.every is None else ["train", "valid"]:
                self._make_subwords_of_training(name, source)
            for name in self.sets.given:
                self._make_subwords_of_given(name)
            self.make(self.directory / "test_sets", self._name_test_sets)
            dictionaries = [path for path in (self.settings.source_dict, self.settings.target_dict) if path]
            self.make(self.directory / "data-bin", self._reading(dictionaries, self._binarise))
            if self.dry_run:
                self.commands.run("rm", "-rf", "--", self.work)
            else:
                remove(self.work)
                say(f"{self.directory}: prepared")

    # ---- before the first stage ----------------------------------------------------------------------------------

    def _files(self) -> Iterator[tuple[str, Path]]:
        """What the user has given, by its name in the file ``settings``."""
        settings = self.settings
        for pair in zip(*self.training.values(), strict=True):
            yield from ((f"train.{language}", path) for language, path in zip(settings.languages, pair, strict=True))
        for name, given in self.sets.given.items():
            for language in settings.languages:
                yield f"{name}.{language}", _file(given.prefix, language)
                if given.raw is not None:
                    yield f"{name}.raw.{language}", _file(given.raw, language)
        dictionaries = {"SOURCE_DICT": settings.source_dict, "TARGET_DICT": settings.target_dict}
        yield from ((name, path) for name, path in dictionaries.items() if path)
        if settings.codes:
            yield from ((f"CODES{end}", Path(f"{settings.codes}{end}")) for end in settings.languages_by_end)

    def _fingerprint(self, path: Path) -> str:
        """Refuse a file that cannot be used before anything is written."""
        # A file where results are written would be taken for a finished one.
        places = [(self.directory / name).resolve() for name in ("raw", "text", "work", "data-bin")]
        if any(path.resolve().is_relative_to(place) for place in places):
            raise UserError(f"{path}: the results are written there; use another directory than {self.directory}")
        if self.dry_run:
            return ""
        if not path.exists():
            raise UserError(f"{path}: no such file")
        if not path.is_file() or not os.access(path, os.R_OK):
            raise UserError(f"{path}: cannot be read")
        if not path.stat().st_size:
            raise UserError(f"{path}: empty")
        self._states[path] = _state_of(path), checksum(path)
        return self._states[path][1][:FINGERPRINT]

    def _require_unchanged(self, paths: Iterable[Path]) -> None:
        """Check that files are still those whose fingerprints the settings hold; only new times are no change.

        Raises:
            UserError: one of them is another.
        """
        for path in paths:
            state, digest = self._states.get(path, ((), ""))
            if state and _state_of(path) != state and (not path.is_file() or checksum(path) != digest):
                begun = (self.directory / SETTINGS).is_file()
                then = f"delete {self.directory} and give the command again" if begun else "give the command again"
                raise UserError(f"{path}: changed while it was prepared; when it is whole, {then}")

    def _reading(self, paths: Sequence[Path], stage: Stage) -> Stage:
        """A stage that reads what the user has given; what it has made of changed text is removed."""

        def read(output: Path) -> None:
            stage(output)
            try:
                self._require_unchanged(paths)
            except UserError:
                remove(output)
                raise

        return read

    def _check_texts(self) -> None:
        """Check that each pair of files is UTF-8, not empty and of equal length, and what the sets share."""
        if not self.dry_run:
            self._require_own_text_of_each_set()
        settings = self.settings
        for pair in zip(*self.training.values(), strict=True):
            self.step(parallel.check_files, pair)
        for given in self.sets.given.values():
            self.step(parallel.check_files, self._pair(given.prefix))
            if given.raw is not None:
                for files in zip(self._pair(given.prefix), self._pair(given.raw), strict=True):
                    self.step(parallel.check_files, files)
        if not self.dry_run:
            self._report_overlap()
        if (settings.tokeniser, settings.subwords, settings.given_subwords) == ("none", "none", None):
            # Undeclared subwords would be scored with their marks.
            self.step(description.require_no_marks, [path for paths in self.training.values() for path in paths])

    def _require_own_text_of_each_set(self) -> None:
        """Check that no validation or test set is a training text, by content; a test set may be used for validation.

        Raises:
            UserError: the two are the same.
        """

        def digests(prefix: str) -> tuple[str, ...]:
            return tuple(self._states[path][1] for path in self._pair(prefix))

        trained = {digests(prefix): prefix for prefix in self.sets.train}
        validation = self.sets.given.get("valid")
        for name, given in self.sets.given.items():
            if training := trained.get(digests(given.prefix)):
                raise UserError(
                    f"{given.prefix}: the text of {name} is the training text {training}; give one that the "
                    f"model does not see in training{', or every-100th' if name == 'valid' else ''}"
                )
            if validation and given is not validation and digests(given.prefix) == digests(validation.prefix):
                say(f"{name} is the text of valid: checkpoints are chosen on it")

    def _report_overlap(self) -> None:
        """Say how many pairs of the other sets are in the training text, too."""
        training = (pair for paths in zip(*self.training.values(), strict=True) for pair in in_step(paths))
        held_out = {name: in_step(self._pair(given.prefix)) for name, given in self.sets.given.items()}
        shared = {name: count for name, count in parallel.shared_rows(training, held_out).items() if count}
        if shared:
            pairs = ", ".join(f"{count:,} pairs of {name}" for name, count in shared.items())
            say(f"also in the training text: {pairs}")

    def _describe(self) -> None:
        """Tokens, subwords and case of the text: as given, or as made here."""
        settings = self.settings
        changes = {}
        for name in ["valid", *self.sets.tests]:
            of_training = name == "valid" and self.sets.every is not None
            normalised = settings.normalise == "all" or (settings.normalise == "train" and of_training)
            given = self.sets.given[name].changed if name in self.sets.given else ()
            changes[name] = [*given, *(["punctuation"] if normalised else [])]
        self.step(
            description.describe,
            self.directory / "text.json",
            tokeniser=settings.tokeniser if settings.tokeniser != "none" else settings.given_tokeniser or "none",
            subwords=settings.subwords if settings.subwords != "none" else settings.given_subwords or "none",
            lower_case=settings.lower_case or settings.given_lower_case,
            truecased=settings.given_truecased,
            changed=[f"{name}={','.join(kinds)}" for name, kinds in changes.items() if kinds],
        )

    # ---- stages: each writes to the path that it receives --------------------------------------------------------

    def _tokenise_given(self, name: str) -> None:
        given = self.sets.given[name]
        for language in self.settings.languages:
            raw = _file(given.raw or given.prefix, language)
            self.make(self.directory / "raw" / f"{name}.{language}", self._copied(raw))
            stage = self._tokenised(name, language, [_file(given.prefix, language)])
            self.make(self.tokens / f"{name}.tok.{language}", stage)

    def _tokenise_and_clean_training(self) -> Path:
        """The directory of the training text and of the validation text that was split off."""
        source = self.work / "tokens"
        for language in self.settings.languages:
            self.make(source / f"train.{language}", self._tokenised("train", language, self.training[language]))
        if self.settings.clean == "tokens":
            self.make(self.work / "cleaned", self._cleaned(source, "train"))
            source = self.work / "cleaned"
        if self.sets.every is not None:
            self.make(self.work / "split", self._split_off(source, self.sets.every))
            source = self.work / "split"
        return source

    def _copied(self, path: Path) -> Stage:
        return self._reading([path], lambda output: self.step(parallel.copy, path, output))

    def _tokenised(self, name: str, language: str, inputs: Sequence[Path]) -> Stage:
        settings = self.settings
        normalise = settings.normalise == "all" or (settings.normalise == "train" and name == "train")

        def make_tokens(output: Path) -> None:
            self.step(
                tokenise,
                inputs,
                output,
                language=language,
                kind=settings.tokeniser,
                normalise=normalise,
                aggressive=settings.aggressive,
                escape=settings.escape,
                lower_case=settings.lower_case,
                workers=settings.workers,
            )

        return self._reading(inputs, make_tokens)

    def _cleaned(self, source: Path, name: str) -> Stage:
        """Both languages of a set, and ``kept``: the numbers of the kept lines."""
        settings = self.settings

        def clean(output: Path) -> None:
            self._mkdir(output)
            self.step(
                parallel.clean,
                _pair_in(source, name, settings.languages),
                _pair_in(output, name, settings.languages),
                output / "kept",
                min_length=settings.min_length,
                max_length=settings.max_length,
                ratio=settings.ratio,
            )

        return clean

    def _split_off(self, source: Path, every: int) -> Stage:
        """Training and validation set, and the raw lines of the validation set."""
        cleaned = self.settings.clean == "tokens"
        names = [f"train.{language}" for language in self.settings.languages]

        def split(output: Path) -> None:
            self._mkdir(output)
            for name in [*names, "train.kept"] if cleaned else names:
                whole = source / ("kept" if name == "train.kept" else name)
                self.step(parallel.split, whole, output / name, output / name.replace("train", "valid"), every=every)
            for language, inputs in self.training.items():
                raw = output / f"valid.raw.{language}"
                if cleaned:
                    self.step(parallel.select, inputs, raw, lines=output / "valid.kept")
                else:
                    self.step(parallel.select_every, inputs, raw, every=every)

        return self._reading([path for paths in self.training.values() for path in paths], split)

    def _learn_subwords(self, source: Path) -> None:
        settings = self.settings
        if settings.subwords == "none":
            return
        for end, languages in settings.languages_by_end.items():
            codes = self._copied(Path(f"{settings.codes}{end}")) if settings.codes else self._learned(source, languages)
            self.make(self._codes(languages[0]), codes)
        if settings.vocabulary_threshold:
            for language in settings.languages:
                self.make(self.directory / f"vocabulary.{language}", self._vocabulary(source, language))

    def _learned(self, source: Path, languages: Sequence[str]) -> Stage:
        """Merges or a model."""
        size, inputs = self.settings.size, [source / f"train.{language}" for language in languages]
        if self.settings.subwords == "bpe":
            return lambda output: self.step(bpe.learn_merges, inputs, output, merges=size)
        return lambda output: self.step(pieces.learn_model, inputs, output, size=size)

    def _codes(self, language: str) -> Path:
        name = "codes" if self.settings.subwords == "bpe" else "sentencepiece.model"
        return self.directory / (name + ("" if self.settings.joint_codes else f".{language}"))

    def _vocabulary(self, source: Path, language: str) -> Stage:
        """Counts of the training text's subwords before rare ones are split."""
        unfiltered = self.work / f"unfiltered.{language}"
        codes, workers = self._codes(language), self.settings.workers

        def count(output: Path) -> None:
            self.step(bpe.apply_bpe, source / f"train.{language}", unfiltered, codes=codes, workers=workers)
            self.step(bpe.write_vocabulary, unfiltered, output)
            if not self.dry_run:
                remove(unfiltered)

        return count

    def _make_subwords_of_training(self, name: str, source: Path) -> None:
        """Training text, or validation text split off it: in subwords (cleaned, if by subwords) and in tokens."""
        languages, cut = self.settings.languages, self.work / "subwords"
        for language in languages:
            self.make(cut / f"{name}.{language}", self._in_subwords(language, source / f"{name}.{language}"))
        kept = None
        if self.settings.clean == "subwords":
            self.make(self.work / f"cleaned-{name}", self._cleaned(cut, name))
            cut = self.work / f"cleaned-{name}"
            kept = cut / "kept"
        for language in languages:
            final = self.text / f"{name}.{language}"
            self.make(final, self._placed(cut / f"{name}.{language}"))
            # Drop the same lines from the tokens, so that line k stays line k.
            in_tokens = self._selected(kept, source / f"{name}.{language}")
            stage = in_tokens if self.tokens == self.text else self._without_subwords(final)
            self.make(self.text / f"{name}.tok.{language}", stage)
            if name == "valid":
                raw = self._selected(kept, source / f"valid.raw.{language}")
                self.make(self.directory / "raw" / f"valid.{language}", raw)

    def _make_subwords_of_given(self, name: str) -> None:
        for language in self.settings.languages:
            cut = self.text / f"{name}.{language}"
            self.make(cut, self._in_subwords(language, self.tokens / f"{name}.tok.{language}"))
            if self.tokens != self.text:
                self.make(self.text / f"{name}.tok.{language}", self._without_subwords(cut))

    def _in_subwords(self, language: str, path: Path) -> Stage:
        settings, codes, workers = self.settings, self._codes(language), self.settings.workers
        if settings.subwords == "none":
            return self._placed(path)
        if settings.subwords == "sentencepiece":
            return lambda output: self.step(pieces.apply_model, path, output, model=codes, workers=workers)
        threshold = settings.vocabulary_threshold
        vocabulary = self.directory / f"vocabulary.{language}" if threshold else None
        return lambda output: self.step(
            bpe.apply_bpe, path, output, codes=codes, vocabulary=vocabulary, threshold=threshold or 1, workers=workers
        )

    def _without_subwords(self, path: Path) -> Stage:
        kind = self.settings.given_subwords
        assert kind in ("bpe", "sentencepiece")
        return lambda output: self.step(join.join_subwords, path, output, kind=kind)

    def _selected(self, kept: Path | None, path: Path) -> Stage:
        if kept is None:
            return self._placed(path)
        return lambda output: self.step(parallel.select, [path], output, lines=kept)

    def _placed(self, path: Path) -> Stage:
        """A hard link, or a copy where the file system has no hard links."""

        def place(output: Path) -> None:
            if self.dry_run:
                self.commands.run("cp", "--link", "--", path, output)
                return
            with suppress(OSError):
                os.link(path, output)
                return
            parallel.copy(path, output)

        return place

    def _name_test_sets(self, output: Path) -> None:
        """Write each test set's name in ``data-bin`` and its name for the user."""
        if not self.dry_run:
            lines = [f"test{index or ''}\t{name}\n" for index, name in enumerate(self.sets.tests)]
            write_whole(output, "".join(lines))

    def _binarise(self, output: Path) -> None:
        settings = self.settings
        words = ["--source-lang", settings.source, "--target-lang", settings.target, "--workers", settings.workers]
        words += ["--destdir", output, "--trainpref", self.text / "train", "--validpref", self.text / "valid"]
        words += ["--testpref", ",".join(f"{self.text}/{name}" for name in self.sets.tests)] if self.sets.tests else []
        words += ["--joined-dictionary"] if settings.joined else []
        words += ["--nwordssrc", settings.types, "--nwordstgt", settings.types] if settings.types else []
        words += ["--srcdict", settings.source_dict] if settings.source_dict else []
        words += ["--tgtdict", settings.target_dict] if settings.target_dict else []
        self.commands.deep("preprocess", *words)

    def _mkdir(self, directory: Path) -> None:
        if self.dry_run:
            self.commands.run("mkdir", "-p", "--", directory)
        else:
            directory.mkdir(parents=True, exist_ok=True)

    def _pair(self, prefix: str) -> list[Path]:
        return [_file(prefix, language) for language in self.settings.languages]


def _file(prefix: str, language: str) -> Path:
    """The file, or its .gz."""
    path = Path(f"{prefix}.{language}")
    compressed = Path(f"{path}.gz")
    return compressed if not path.exists() and compressed.exists() else path


def _pair_in(directory: Path, name: str, languages: tuple[str, str]) -> tuple[Path, Path]:
    source, target = languages
    return directory / f"{name}.{source}", directory / f"{name}.{target}"


def _state_of(path: Path) -> State:
    """Empty for a file that is gone."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return ()


def is_prepared(directory: Path) -> bool:
    """Whether the last stages of a preparation have ended."""
    return (directory / "data-bin").exists() and (directory / "test_sets").exists()


# ---- the command -----------------------------------------------------------------------------------------------------


def _directory(given: str) -> Path:
    path = given.removesuffix("/")
    if not path:
        raise UserError(f"'{given}' cannot be the output directory")
    if "=" in path:
        raise UserError(f"the first argument must be the output directory, not '{path}'")
    if "," in path:
        # fairseq splits paths at commas.
        raise UserError(f"{path}: fairseq does not support a comma in a path; use another directory")
    return Path(path)


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ArgumentTypeError("not 0 or 1")
    return text == "1"


def _parser() -> ScriptParser:
    flags = ScriptParser(
        prog="fairseq-deep prepare",
        # The scripts pass the sets as arguments; RAW and VALID in the environment have other meanings.
        only_flags=("train", "valid", "test", "raw", "changed", "check"),
        description="Prepare a parallel corpus for training: check, tokenise, clean, split into subwords, binarise. "
        "PREFIX names two parallel files PREFIX.SOURCE and PREFIX.TARGET, or these with .gz; UTF-8, one sentence per "
        "line. The same command continues a stopped preparation; with other settings or other text it refuses DIR.",
    )
    flags.add_argument("directory", metavar="DIR", help="the result: raw/, text/, codes, data-bin/, settings, ...")
    for name, metavar, help in (
        ("train", "PREFIX", "training text; concatenated"),
        ("valid", "PREFIX", "or every-23rd (any number): every 23rd training pair, after cleaning"),
        ("test", "NAME=PREFIX", "test sets, any names"),
        ("raw", "NAME=PREFIX", "published references of a set, if they differ from the text to tokenise"),
        (
            "changed",
            "NAME=CHANGE,...",
            "how the text of a set differs from its references: apostrophes (' for ’), punctuation (normalised)",
        ),
    ):
        flags.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar=metavar, help=help)
    types = get_type_hints(Settings)
    for setting in fields(Settings):
        reading: dict[str, Any] = value_of(types[setting.name], setting.metadata["least"])
        if types[setting.name] is bool:
            reading = {"type": _switch, "nargs": "?", "const": True, "metavar": "0|1"}
        default = None if setting.default is MISSING else setting.default
        shown = f" (default: {int(default) if isinstance(default, bool) else default})" if default else ""
        help = setting.metadata["help"] + shown
        flags.add_argument(as_option(setting.name), default=SUPPRESS, help=help, **reading)
    flags.add_argument("--check", action="store_true", help="only check the settings, and that DIR has no others")
    flags.add_argument("--dry-run", action="store_true", help="only print the commands")
    return flags


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep prepare DIR --train PREFIX ... --valid PREFIX|every-Nth [--test NAME=PREFIX ...]``."""
    args = _parser().read(argv)
    directory = _directory(args.directory)
    names = {setting.name for setting in fields(Settings)}
    settings = Settings(**{name: value for name, value in vars(args).items() if name in names})
    if args.check:
        every = every_of(args.valid[-1] if args.valid else "")
        remembered = settings.remembered(every)
        names_of_all = {*remembered, *(name.upper() for name in LATER)}
        Workspace(directory).require(remembered, only=names_of_all)
        return 0
    sets = sets_of(args.train, args.valid, args.test, args.raw, args.changed)
    preparation = Preparation(directory, sets, settings, dry_run=args.dry_run)
    with interruptible():
        preparation.run()
    return 0
