"""``fairseq-deep prepare``: from parallel sentences to a directory to train on, in one pass.

Check, tokenise, clean, split off a validation set, learn and apply subwords, binarise: :meth:`Preparation.run` calls
the stages in this order. Each is a function of :mod:`fairseq_plugins.tools.text`, or fairseq's own command.
"""

from argparse import SUPPRESS, BooleanOptionalAction
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, get_type_hints

from fairseq_plugins.checkpoints.provenance import listed, phrases
from fairseq_plugins.errors import UserError, flag
from fairseq_plugins.files import write_whole
from fairseq_plugins.lines import check_files, in_step
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.sums import add_sums, checksum, require_sums
from fairseq_plugins.tools.pipeline import commands
from fairseq_plugins.tools.pipeline.commands import interruptible, step
from fairseq_plugins.tools.pipeline.prepare_settings import LATER, PrepareSettings, Sets, every_of, sets_of
from fairseq_plugins.tools.pipeline.workspace import SETTINGS, Workspace, remove, say
from fairseq_plugins.tools.text import description, parallel, subwords
from fairseq_plugins.tools.text.command import value_of
from fairseq_plugins.tools.text.steps import tokenise

LEARNED = ("codes*", "sentencepiece.model*", "vocabulary.*")
"""Files that a package of the training needs in addition to the data."""
FINGERPRINT = 16
"""Digits of a text's SHA-256 in the settings of a directory; changing it invalidates existing directories."""


class Preparation:
    """Prepares one directory; a UserError if a file is missing or settings contradict."""

    def __init__(self, directory: Path, sets: Sets, settings: PrepareSettings) -> None:
        self.directory = directory
        self.text = directory / "text"
        self.work = directory / "work"
        self.sets = sets
        self.settings = settings
        self.workspace = Workspace(directory)
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
        self.checksums = {path: self._checksum(path) for _, path in self._given_files()}

    def run(self) -> None:
        """Run all stages; finished ones are skipped. A UserError for bad text or other settings than before."""
        with self.workspace.claimed():
            # Settings contain fingerprints of the text. They are only written for checked text, so after bad text is
            # corrected the same directory can be used.
            if not (self.directory / SETTINGS).is_file():
                self._check_texts()
            fingerprints = [(name, self.checksums[path][:FINGERPRINT]) for name, path in self._given_files()]
            self.workspace.remember([*self.settings.remembered(self.sets.every).items(), *fingerprints])
            self._describe()
            if all((self.directory / name).exists() for name in ("data-bin", "test_sets")):
                require_sums(self.directory / "data-bin", "*")
                remove(self.work)
                say(f"{self.directory}: prepared already")
                return
            source = self._tokenise_and_clean_training()
            self._learn_subwords(source)
            for name in ["train"] if self.sets.every is None else ["train", "valid"]:
                self._finish_training(name, source)
            for name in self.sets.given:
                self._prepare_given(name)
            test_sets = [f"test{index or ''}\t{name}\n" for index, name in enumerate(self.sets.tests)]
            write_whole(self.directory / "test_sets", "".join(test_sets))
            self.workspace.make(self.directory / "data-bin", self._binarise)
            remove(self.work)
            say(f"{self.directory}: prepared")

    # ---- the user's files -----------------------------------------------------------------------------------------

    def _given_files(self) -> Iterator[tuple[str, Path]]:
        """Each file with its name in the file ``settings``; several training texts have the same name."""
        settings = self.settings
        for prefix in self.sets.train:
            for language in settings.languages:
                yield f"train.{language}", _file(prefix, language)
        for name, given in self.sets.given.items():
            for language in settings.languages:
                yield f"{name}.{language}", _file(given.prefix, language)
                if given.raw is not None:
                    yield f"{name}.raw.{language}", _file(given.raw, language)
        dictionaries = {"SOURCE_DICT": settings.source_dict, "TARGET_DICT": settings.target_dict}
        yield from ((name, path) for name, path in dictionaries.items() if path)
        if settings.codes:
            yield from ((f"CODES{end}", Path(f"{settings.codes}{end}")) for end in settings.languages_by_end)

    def _checksum(self, path: Path) -> str:
        """Refuse a file that cannot be used before anything is written."""
        # A file where results are written would be taken for a finished one.
        places = [(self.directory / name).resolve() for name in ("raw", "text", "work", "data-bin")]
        if any(path.resolve().is_relative_to(place) for place in places):
            raise UserError(f"{path}: the results are written there; use another directory than {self.directory}")
        if not path.exists():
            raise UserError(f"{path}: no such file")
        if not path.stat().st_size:
            raise UserError(f"{path}: empty")
        return checksum(path)

    def _check_texts(self) -> None:
        """Check that each pair of files is UTF-8, not empty and of equal length, and what the sets share."""
        settings = self.settings
        pairs = list(zip(*self.training.values(), strict=True))
        held_out = {name: self._pair(given.prefix) for name, given in self.sets.given.items()}
        for pair in [*pairs, *held_out.values()]:
            step(check_files, pair)
        for name, given in self.sets.given.items():
            if given.raw is not None:
                for files in zip(held_out[name], self._pair(given.raw), strict=True):
                    step(check_files, files)

        def rows(pair: Sequence[Path]) -> Iterator[tuple[str, ...]]:
            # One text may have the line ends of Windows, and another text may not.
            return (tuple(map(str.strip, row)) for row in in_step(pair))

        training = (row for pair in pairs for row in rows(pair))
        shared = parallel.shared_rows(training, {name: rows(pair) for name, pair in held_out.items()})
        if any(shared.values()):
            counts = ", ".join(
                f"{count:,} pair{'s' if count > 1 else ''} of {name}" for name, count in shared.items() if count
            )
            say(f"also in the training text: {counts}")
        if (settings.tokeniser, settings.subwords, settings.given_subwords) == ("none", "none", None):
            # Undeclared subwords would be scored with their marks.
            step(description.require_no_marks, [path for paths in self.training.values() for path in paths])

    def _describe(self) -> None:
        """Tokens, subwords and case of the text: as given, or as made here."""
        settings = self.settings
        changed = {name: [*given.changed] for name, given in self.sets.given.items() if given.changed}
        normalised = [name for name in self.sets.given if self._is_normalised(name)]
        normalised += ["valid"] if self.sets.every is not None and self._is_normalised("train") else []
        for name in normalised:
            changed.setdefault(name, []).append("punctuation")
        kind = settings.subwords if settings.subwords != "none" else settings.given_subwords or "none"
        text = description.Description(
            tokeniser=settings.tokeniser if settings.tokeniser != "none" else settings.given_tokeniser or "none",
            subwords="subword_nmt" if kind == "bpe" else kind,
            lower_case=settings.lower_case or settings.given_lower_case,
            truecased=settings.given_truecased,
            changed=changed,
        )
        if before := description.described(self.directory):
            others = phrases((name, getattr(before, name), value) for name, value in vars(text).items())
            if others:
                path = self.directory / description.FILE
                raise UserError(f"{path} says otherwise ({listed(others)}); use another directory, or delete it")
        text.write(self.directory / description.FILE)

    def _is_normalised(self, name: str) -> bool:
        return self.settings.normalise == "all" or (self.settings.normalise == "train" and name == "train")

    # ---- stages --------------------------------------------------------------------------------------------------

    def _make(self, function: Callable[..., str | None], given: Any, output: Path, **options: Any) -> None:
        """Make one file by a step that reads ``given``, unless the file is there."""
        self.workspace.make(output, lambda partial: step(function, given, partial, **options))

    def _tokenise(self, name: str, language: str, inputs: Sequence[Path], output: Path) -> None:
        self._make(
            tokenise,
            inputs,
            output,
            language=language,
            kind=self.settings.tokeniser,
            normalise=self._is_normalised(name),
            aggressive=self.settings.aggressive,
            escape=self.settings.escape,
            lower_case=self.settings.lower_case,
            workers=self.settings.workers,
        )

    def _tokenise_and_clean_training(self) -> Path:
        """The directory of the training text and of the validation text that was split off."""
        source, every = self.work / "tokens", self.sets.every
        for language, inputs in self.training.items():
            self._tokenise("train", language, inputs, source / f"train.{language}")
        if self.settings.clean == "tokens":
            source = self._clean(source, "train", self.work / "cleaned")
        if every is None:
            return source
        self.workspace.make(self.work / "split", lambda partial: self._split_off(source, partial, every))
        return self.work / "split"

    def _clean(self, source: Path, name: str, output: Path) -> Path:
        """Both languages of a set, and ``kept``: the numbers of the kept lines."""
        settings = self.settings
        limits: Any = {"min_length": settings.min_length, "max_length": settings.max_length, "ratio": settings.ratio}

        def clean(partial: Path) -> None:
            partial.mkdir()
            names = [f"{name}.{end}" for end in settings.languages]
            given, made = ((place / names[0], place / names[1]) for place in (source, partial))
            step(parallel.clean, given, made, partial / "kept", **limits)

        self.workspace.make(output, clean)
        return output

    def _split_off(self, source: Path, output: Path, every: int) -> None:
        """Training and validation set, and the raw lines of the validation set."""
        output.mkdir()
        cleaned = self.settings.clean == "tokens"
        for end in (*self.settings.languages, *(["kept"] if cleaned else [])):
            whole = source / ("kept" if end == "kept" else f"train.{end}")
            step(parallel.split, whole, output / f"train.{end}", output / f"valid.{end}", every=every)
        for language, inputs in self.training.items():
            raw = output / f"valid.raw.{language}"
            if cleaned:
                step(parallel.select, inputs, raw, lines=output / "valid.kept")
            else:
                step(parallel.select_every, inputs, raw, every=every)

    def _learn_subwords(self, source: Path) -> None:
        """Learn or copy merges or a model, and count the training text's subwords before rare ones are split."""
        settings = self.settings
        if settings.subwords == "none":
            return
        for end, languages in settings.languages_by_end.items():
            codes, inputs = self._codes(languages[0]), [source / f"train.{language}" for language in languages]
            if settings.codes:
                self._make(parallel.copy, Path(f"{settings.codes}{end}"), codes)
            elif settings.subwords == "bpe":
                self._make(subwords.learn_merges, inputs, codes, merges=settings.size)
            else:
                self._make(subwords.learn_pieces, inputs, codes, size=settings.size)
        for language in settings.languages if settings.vocabulary_threshold else ():
            unfiltered = self.work / f"unfiltered.{language}"
            codes, workers = self._codes(language), settings.workers
            if not (self.directory / f"vocabulary.{language}").exists():
                self._make(subwords.apply_bpe, source / f"train.{language}", unfiltered, codes=codes, workers=workers)
            self._make(subwords.write_vocabulary, unfiltered, self.directory / f"vocabulary.{language}")
            unfiltered.unlink(missing_ok=True)

    def _codes(self, language: str) -> Path:
        """Merges or a model."""
        name = "codes" if self.settings.subwords == "bpe" else "sentencepiece.model"
        return self.directory / (name + ("" if self.settings.joint_codes else f".{language}"))

    def _finish_training(self, name: str, source: Path) -> None:
        """Training text, or validation text split off it: in subwords (cleaned, if by subwords) and in tokens."""
        languages, cut, kept = self.settings.languages, self.work / "subwords", None
        for language in languages:
            self._make_subwords(language, source / f"{name}.{language}", cut / f"{name}.{language}")
        if self.settings.clean == "subwords":
            cut = self._clean(cut, name, self.work / f"cleaned-{name}")
            kept = cut / "kept"
        for language in languages:
            final = self.text / f"{name}.{language}"
            self._select(None, cut / f"{name}.{language}", final)
            # Drop the same lines from the tokens, so that line k stays line k.
            if not self.settings.in_subwords:
                self._select(kept, source / f"{name}.{language}", self.text / f"{name}.tok.{language}")
            self._join_subwords(name, language)
            if name == "valid":
                self._select(kept, source / f"valid.raw.{language}", self.directory / "raw" / f"valid.{language}")

    def _prepare_given(self, name: str) -> None:
        """A set that the user gives: its references as published, in tokens and in subwords."""
        given = self.sets.given[name]
        for language in self.settings.languages:
            raw = _file(given.raw or given.prefix, language)
            self._make(parallel.copy, raw, self.directory / "raw" / f"{name}.{language}")
            # Text given in subwords is stored here until its tokens are made from it.
            place = self.work / "given" if self.settings.in_subwords else self.text
            tokens = place / f"{name}.tok.{language}"
            self._tokenise(name, language, [_file(given.prefix, language)], tokens)
            self._make_subwords(language, tokens, self.text / f"{name}.{language}")
            self._join_subwords(name, language)

    def _make_subwords(self, language: str, path: Path, output: Path) -> None:
        settings, codes, workers = self.settings, self._codes(language), self.settings.workers
        threshold = settings.vocabulary_threshold
        if settings.subwords == "none":
            self._select(None, path, output)
        elif settings.subwords == "sentencepiece":
            self._make(subwords.apply_pieces, path, output, model=codes, workers=workers)
        else:
            rare = (
                {"vocabulary": self.directory / f"vocabulary.{language}", "threshold": threshold} if threshold else {}
            )
            self._make(subwords.apply_bpe, path, output, codes=codes, **rare, workers=workers)

    def _join_subwords(self, name: str, language: str) -> None:
        """The tokens of text that was given in subwords."""
        if self.settings.in_subwords:
            cut, tokens = (self.text / f"{name}{end}.{language}" for end in ("", ".tok"))
            self._make(subwords.join_subwords, cut, tokens, kind=self.settings.given_subwords)

    def _select(self, kept: Path | None, path: Path, output: Path) -> None:
        """The lines with the numbers in ``kept``; all lines without it."""
        if kept is None:
            self._make(parallel.copy, path, output)
        else:
            self._make(parallel.select, [path], output, lines=kept)

    def _binarise(self, output: Path) -> None:
        settings = self.settings
        words = ["--source-lang", settings.source, "--target-lang", settings.target, "--workers", settings.workers]
        words += ["--destdir", output, "--trainpref", self.text / "train", "--validpref", self.text / "valid"]
        words += ["--testpref", ",".join(f"{self.text}/{name}" for name in self.sets.tests)] if self.sets.tests else []
        words += ["--joined-dictionary"] if settings.joined else []
        words += ["--nwordssrc", settings.types, "--nwordstgt", settings.types] if settings.types else []
        words += ["--srcdict", settings.source_dict] if settings.source_dict else []
        words += ["--tgtdict", settings.target_dict] if settings.target_dict else []
        # data-bin/preprocess.log has the output, too.
        commands.run(*commands.DEEP, "preprocess", *words, output=DEVNULL)
        learned = [path for name in LEARNED for path in self.directory.glob(name)]
        add_sums(output, {f"../{path.name}": path for path in learned})

    def _pair(self, prefix: str) -> list[Path]:
        return [_file(prefix, language) for language in self.settings.languages]


def _file(prefix: str, language: str) -> Path:
    """The file, or its .gz."""
    path = Path(f"{prefix}.{language}")
    compressed = Path(f"{path}.gz")
    return compressed if not path.exists() and compressed.exists() else path


# ---- the command -----------------------------------------------------------------------------------------------------


def _by_name(words: Sequence[str]) -> list[str]:
    """The words with ``--joined 0``, the spelling of earlier versions and of the scripts, as ``--no-joined``."""
    switches = {
        flag(name): flag(f"no_{name}") for name, kind in get_type_hints(PrepareSettings).items() if kind is bool
    }
    named: list[str] = []
    for word in words:
        option, _, value = word.partition("=")
        if option in switches and value in ("0", "1"):
            named.append(option if value == "1" else switches[option])
        elif named and named[-1] in switches and word in ("0", "1"):
            named[-1] = named[-1] if word == "1" else switches[named[-1]]
        else:
            named.append(word)
    return named


def _parser() -> OneLineParser:
    flags = OneLineParser(
        prog="fairseq-deep prepare",
        description="Prepare a parallel corpus for training: check, tokenise, clean, split into subwords, binarise. "
        "PREFIX names two parallel files PREFIX.SOURCE and PREFIX.TARGET, or these with .gz; UTF-8, one sentence per "
        "line. The same command continues a stopped preparation; with other settings or other text it refuses DIR.",
    )
    flags.add_argument("directory", metavar="DIR", help="the result: raw/, text/, codes, data-bin/, settings, ...")
    for name, metavar, help in (
        ("train", "PREFIX", "training texts, which are concatenated"),
        (
            "valid",
            "PREFIX",
            "validation text, or every-Nth (such as every-23rd): every N-th training pair after cleaning",
        ),
        ("test", "NAME=PREFIX", "test sets with names of your choice"),
        ("raw", "NAME=PREFIX", "published references of a set, if they differ from the text to tokenise"),
        (
            "changed",
            "NAME=CHANGE,...",
            "how the text of a set differs from its references: apostrophes (' for ’), punctuation (normalised)",
        ),
    ):
        flags.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar=metavar, help=help)
    types = get_type_hints(PrepareSettings)
    for setting in fields(PrepareSettings):
        kind = types[setting.name]
        reading = {"action": BooleanOptionalAction} if kind is bool else value_of(kind, setting.metadata["least"])
        default = SUPPRESS if setting.default is MISSING else setting.default
        flags.add_argument(flag(setting.name), default=default, help=setting.metadata["help"], **reading)
    flags.add_argument("--check", action="store_true", help="only compare the settings with the settings of DIR")
    return flags


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep prepare DIR --train PREFIX ... --valid PREFIX|every-Nth [--test NAME=PREFIX ...]``."""
    args = _parser().read(_by_name(argv))
    # fairseq splits paths at commas.
    if not args.directory or "," in args.directory:
        raise UserError(f"'{args.directory}' cannot be the output directory: it is empty, or has a comma")
    directory = Path(args.directory)
    names = {setting.name for setting in fields(PrepareSettings)}
    settings = PrepareSettings(**{name: value for name, value in vars(args).items() if name in names})
    if args.check:
        remembered = settings.remembered(every_of(args.valid[-1] if args.valid else ""))
        Workspace(directory).require(remembered.items(), only={*remembered, *(name.upper() for name in LATER)})
        return 0
    sets = sets_of(args.train, args.valid, args.test, args.raw, args.changed)
    preparation = Preparation(directory, sets, settings)
    with interruptible():
        preparation.run()
    return 0
