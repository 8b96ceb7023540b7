"""``fairseq-deep prepare``: from parallel sentences to a directory to train on, in one pass.

Check, tokenise, clean, split off a validation set, learn and apply subwords, binarise: :meth:`Preparation.run` calls
the stages in this order. Each is one command of ``python -m fairseq_plugins.text``, or fairseq's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum, write_whole
from fairseq_plugins.lines import in_step
from fairseq_plugins.options import ScriptParser
from fairseq_plugins.pipeline.commands import Commands, interruptible
from fairseq_plugins.pipeline.prepare_settings import LEGAL, Sets, Settings, every_of, require_only, sets_of
from fairseq_plugins.pipeline.workspace import SETTINGS, Workspace, remove, say
from fairseq_plugins.processor import core_count
from fairseq_plugins.text import moses
from fairseq_plugins.text.overlap import shared_rows

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
        UserError: a file is missing or empty; sets and settings contradict each other.
    """

    def __init__(self, directory: Path, sets: Sets, settings: Settings, *, dry_run: bool = False) -> None:
        self.directory = directory
        self.work = directory / "work"
        # Text given in subwords is stored here until its tokens are made from it.
        self.tokens = self.work / "given" if settings.in_subwords else directory / "text"
        self.sets = sets
        self.settings = settings
        self.dry_run = dry_run
        self.commands = Commands(dry_run=dry_run)
        self.workspace = Workspace(directory, dry_run=dry_run)
        self.make = self.workspace.make
        if settings.given_tokeniser == "moses" or settings.in_subwords:
            for name in sets.tests:
                if sets.given[name].raw is None:
                    raise UserError(
                        f"no {name}.raw=PREFIX given: the text of {name} is in tokens or subwords, but scores need it "
                        "as published"
                    )
        self.training = {
            language: [_file(prefix, language) for prefix in sets.train] for language in settings.languages
        }
        self._states: dict[Path, tuple[State, str]] = {}
        self._require_own_places()
        self.fingerprints = list(self._fingerprints())

    def run(self) -> None:
        """Run all stages; finished ones are skipped.

        Raises:
            UserError: bad text, other settings than before, another job in the directory, a failed step.
        """
        with self.workspace.claimed():
            # Settings contain fingerprints of the text. They are only written for checked text, so after bad text is
            # corrected the same directory can be used.
            if not (self.directory / SETTINGS).is_file():
                self._require_own_text_of_each_set()
                self._check_texts()
                self._require_unchanged(self._states)
            self.workspace.remember([*self.settings.remembered(self.sets.every).items(), *self.fingerprints])
            self._describe()
            if _is_prepared(self.directory) and not self.dry_run:
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
            self.make(self.directory / "test_sets", self._named_test_sets)
            dictionaries = [Path(path) for path in (self.settings.source_dict, self.settings.target_dict) if path]
            self.make(self.directory / "data-bin", self._reading(dictionaries, self._binarised))
            self._drop(self.work)
            if not self.dry_run:
                say(f"{self.directory}: prepared")

    def _drop(self, path: Path) -> None:
        """Remove what no later stage reads."""
        if self.dry_run:
            self.commands.run("rm", "-rf", "--", path)
        else:
            remove(path)

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
            self.make(self.work / "split", self._split_off(source))
            source = self.work / "split"
        return source

    def _learn_subwords(self, source: Path) -> None:
        settings = self.settings
        if settings.subwords == "none":
            return
        for end, languages in settings.languages_by_end.items():
            codes = self._copied(Path(settings.codes + end)) if settings.codes else self._learned(source, languages)
            self.make(self._codes(languages[0]), codes)
        if settings.vocabulary_threshold != "0":
            for language in settings.languages:
                self.make(self.directory / f"vocabulary.{language}", self._vocabulary(source, language))

    def _make_subwords_of_training(self, name: str, source: Path) -> None:
        """Training text, or validation text split off it: in subwords (cleaned, if by subwords) and in tokens."""
        languages, text, cut = self.settings.languages, self.directory / "text", self.work / "subwords"
        for language in languages:
            self.make(cut / f"{name}.{language}", self._in_subwords(language, source / f"{name}.{language}"))
        kept = None
        if self.settings.clean == "subwords":
            self.make(self.work / f"cleaned-{name}", self._cleaned(cut, name))
            cut = self.work / f"cleaned-{name}"
            kept = cut / "kept"
        for language in languages:
            final = text / f"{name}.{language}"
            self.make(final, self._placed(cut / f"{name}.{language}"))
            # Drop the same lines from the tokens, so that line k stays line k.
            in_tokens = self._selected(kept, source / f"{name}.{language}")
            stage = in_tokens if self.tokens == text else self._without_subwords(final)
            self.make(text / f"{name}.tok.{language}", stage)
            if name == "valid":
                raw = self._selected(kept, source / f"valid.raw.{language}")
                self.make(self.directory / "raw" / f"valid.{language}", raw)

    def _make_subwords_of_given(self, name: str) -> None:
        text = self.directory / "text"
        for language in self.settings.languages:
            cut = text / f"{name}.{language}"
            self.make(cut, self._in_subwords(language, self.tokens / f"{name}.tok.{language}"))
            if self.tokens != text:
                self.make(text / f"{name}.tok.{language}", self._without_subwords(cut))

    # ---- before the first stage ----------------------------------------------------------------------------------

    def _require_own_places(self) -> None:
        """Check that nothing given is where results are written: a file there would be taken for a finished one.

        Raises:
            UserError: it is.
        """
        places = [(self.directory / name).resolve() for name in ("raw", "text", "work", "data-bin")]
        for _, path in self._files():
            if any(path.resolve().is_relative_to(place) for place in places):
                raise UserError(f"{path}: the results are written there; use another directory than {self.directory}")

    def _fingerprints(self) -> Iterable[tuple[str, str]]:
        """Fingerprints of the texts, by their names in the file ``settings``."""
        for name, path in self._files():
            yield name, self._fingerprint(path)

    def _files(self) -> Iterable[tuple[str, Path]]:
        settings = self.settings
        for pair in zip(*self.training.values(), strict=True):
            yield from ((f"train.{language}", path) for language, path in zip(settings.languages, pair, strict=True))
        for name, given in self.sets.given.items():
            for language in settings.languages:
                yield f"{name}.{language}", _file(given.prefix, language)
                if given.raw is not None:
                    yield f"{name}.raw.{language}", _file(given.raw, language)
        dictionaries = {"SOURCE_DICT": settings.source_dict, "TARGET_DICT": settings.target_dict}
        yield from ((name, Path(path)) for name, path in dictionaries.items() if path)
        if settings.codes:
            yield from ((f"CODES{end}", Path(settings.codes + end)) for end in settings.languages_by_end)

    def _fingerprint(self, path: Path) -> str:
        """Refuse a missing file before anything is written."""
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
        """Check that every pair of files is UTF-8, not empty and of equal length."""
        source, target = self.settings.languages
        for pair in zip(*self.training.values(), strict=True):
            self.commands.text("check", *pair)
        for given in self.sets.given.values():
            self.commands.text("check", _file(given.prefix, source), _file(given.prefix, target))
            if given.raw is not None:
                for language in self.settings.languages:
                    self.commands.text("check", _file(given.prefix, language), _file(given.raw, language))
        self._report_overlap()
        untouched = (self.settings.tokeniser, self.settings.subwords, self.settings.given_subwords)
        if untouched == ("none", "none", ""):
            # Undeclared subwords would be scored with their marks.
            self.commands.text("marks", *self.training[source], *self.training[target])

    def _require_own_text_of_each_set(self) -> None:
        """Check that no validation or test set is a training text, by content; a test set may be used for validation.

        Raises:
            UserError: the two are the same.
        """
        if self.dry_run:
            return
        trained = {self._digests(prefix): prefix for prefix in self.sets.train}
        validated = {self._digests(given.prefix) for name, given in self.sets.given.items() if name == "valid"}
        for name, given in self.sets.given.items():
            digests = self._digests(given.prefix)
            if digests in trained:
                raise UserError(
                    f"{given.prefix}: the text of {name} is the training text {trained[digests]}; give one that the "
                    f"model does not see in training{', or every-100th' if name == 'valid' else ''}"
                )
            if name != "valid" and digests in validated:
                say(f"{name} is the text of valid: checkpoints are chosen on it")

    def _digests(self, prefix: str) -> tuple[str, ...]:
        return tuple(self._states[_file(prefix, language)][1] for language in self.settings.languages)

    def _report_overlap(self) -> None:
        """Say how many pairs of the other sets are in the training text, too."""
        if self.dry_run:
            return
        training = (pair for paths in zip(*self.training.values(), strict=True) for pair in in_step(paths))
        held_out = {
            name: in_step([_file(given.prefix, language) for language in self.settings.languages])
            for name, given in self.sets.given.items()
        }
        shared = {name: count for name, count in shared_rows(training, held_out).items() if count}
        if shared:
            pairs = ", ".join(f"{count:,} pairs of {name}" for name, count in shared.items())
            say(f"also in the training text: {pairs}")

    def _describe(self) -> None:
        """Tokens, subwords and case of the text: as given, or as made here."""
        settings, sets = self.settings, self.sets
        tokeniser = settings.tokeniser if settings.tokeniser != "none" else settings.given_tokeniser or "none"
        subwords = settings.subwords if settings.subwords != "none" else settings.given_subwords or "none"
        words = ["--tokeniser", tokeniser, "--subwords", subwords]
        words += ["--lower-case"] if "1" in (settings.lower_case, settings.given_lower_case) else []
        words += ["--truecased"] if settings.given_truecased == "1" else []
        for name in ["valid", *sets.tests]:
            if name in sets.given and sets.given[name].changed:
                words += ["--changed", f"{name}={','.join(sets.given[name].changed)}"]
            of_training = name == "valid" and sets.every is not None
            if settings.normalise == "all" or (settings.normalise == "train" and of_training):
                words += ["--changed", f"{name}=punctuation"]
        self.commands.text("describe", *words, self.directory / "text.json")

    # ---- stages: each writes to the path that it receives --------------------------------------------------------

    def _copied(self, path: Path) -> Stage:
        return self._reading([path], lambda output: self.commands.text("copy", path, output))

    def _tokenised(self, name: str, language: str, inputs: Sequence[Path]) -> Stage:
        settings = self.settings
        options = ["--language", language, "--kind", settings.tokeniser, "--workers", settings.workers]
        if settings.normalise == "all" or (settings.normalise == "train" and name == "train"):
            options.append("--normalise")
        options += ["--aggressive"] if settings.aggressive == "1" else []
        options += ["--no-escape"] if settings.escape == "0" else []
        options += ["--lower-case"] if settings.lower_case == "1" else []
        return self._reading(inputs, lambda output: self.commands.text("tokenise", *options, *inputs, output))

    def _cleaned(self, source: Path, name: str) -> Stage:
        """Both languages of a set, and ``kept``: the numbers of the kept lines."""
        settings = self.settings
        limits = ["--min", settings.min_length, "--max", settings.max_length, "--ratio", settings.ratio]

        def clean(output: Path) -> None:
            self._mkdir(output)
            inputs, outputs = (
                [directory / f"{name}.{language}" for language in settings.languages] for directory in (source, output)
            )
            self.commands.text("clean", *limits, *inputs, *outputs, output / "kept")

        return clean

    def _split_off(self, source: Path) -> Stage:
        """Training and validation set, and the raw lines of the validation set."""
        every = ["--every", str(self.sets.every)]
        cleaned = self.settings.clean == "tokens"

        def split(output: Path) -> None:
            self._mkdir(output)
            for language in self.settings.languages:
                parts = [output / f"{name}.{language}" for name in ("train", "valid")]
                self.commands.text("split", *every, source / f"train.{language}", *parts)
            if cleaned:
                self.commands.text("split", *every, source / "kept", output / "train.kept", output / "valid.kept")
            which = ["--lines", output / "valid.kept"] if cleaned else every
            for language in self.settings.languages:
                self.commands.text("select", *which, *self.training[language], output / f"valid.raw.{language}")

        return self._reading([path for paths in self.training.values() for path in paths], split)

    def _learned(self, source: Path, languages: Sequence[str]) -> Stage:
        """Merges or a model."""
        settings = self.settings
        step, size = ("learn-bpe", "--merges") if settings.subwords == "bpe" else ("learn-sentencepiece", "--size")
        inputs = [source / f"train.{language}" for language in languages]
        return lambda output: self.commands.text(step, size, settings.size, *inputs, output)

    def _codes(self, language: str) -> Path:
        name = "codes" if self.settings.subwords == "bpe" else "sentencepiece.model"
        return self.directory / (name + ("" if self.settings.joint_codes == "1" else f".{language}"))

    def _vocabulary(self, source: Path, language: str) -> Stage:
        """Counts of the training text's subwords before rare ones are split."""
        unfiltered = self.work / f"unfiltered.{language}"
        options = ["--codes", self._codes(language), "--workers", self.settings.workers]

        def count(output: Path) -> None:
            self.commands.text("apply-bpe", *options, source / f"train.{language}", unfiltered)
            self.commands.text("count", unfiltered, "--vocabulary", output)
            self._drop(unfiltered)

        return count

    def _in_subwords(self, language: str, path: Path) -> Stage:
        settings = self.settings
        if settings.subwords == "none":
            return self._placed(path)
        workers = ["--workers", settings.workers]
        if settings.subwords == "sentencepiece":
            model = ["--model", self._codes(language)]
            return lambda output: self.commands.text("apply-sentencepiece", *model, *workers, path, output)
        options = ["--codes", self._codes(language)]
        if settings.vocabulary_threshold != "0":
            vocabulary = self.directory / f"vocabulary.{language}"
            options += ["--vocabulary", vocabulary, "--threshold", settings.vocabulary_threshold]
        return lambda output: self.commands.text("apply-bpe", *options, *workers, path, output)

    def _without_subwords(self, path: Path) -> Stage:
        kind = self.settings.given_subwords
        return lambda output: self.commands.text("join-subwords", "--kind", kind, path, output)

    def _selected(self, kept: Path | None, path: Path) -> Stage:
        if kept is None:
            return self._placed(path)
        return lambda output: self.commands.text("select", "--lines", kept, path, output)

    def _placed(self, path: Path) -> Stage:
        """A hard link, or a copy where the file system has no hard links."""

        def place(output: Path) -> None:
            if self.dry_run:
                self.commands.run("cp", "--link", "--", path, output)
                return
            with suppress(OSError):
                os.link(path, output)
                return
            self.commands.text("copy", path, output)

        return place

    def _named_test_sets(self, output: Path) -> None:
        """Write each test set's name in ``data-bin`` and its name for the user."""
        if not self.dry_run:
            lines = [f"test{index or ''}\t{name}\n" for index, name in enumerate(self.sets.tests)]
            write_whole(output, "".join(lines))

    def _binarised(self, output: Path) -> None:
        settings, text = self.settings, self.directory / "text"
        words = ["--source-lang", settings.source, "--target-lang", settings.target, "--workers", settings.workers]
        words += ["--destdir", str(output), "--trainpref", f"{text}/train", "--validpref", f"{text}/valid"]
        words += ["--testpref", ",".join(f"{text}/{name}" for name in self.sets.tests)] if self.sets.tests else []
        words += ["--joined-dictionary"] if settings.joined == "1" else []
        words += ["--nwordssrc", settings.types, "--nwordstgt", settings.types] if settings.types != "0" else []
        words += ["--srcdict", settings.source_dict] if settings.source_dict else []
        words += ["--tgtdict", settings.target_dict] if settings.target_dict else []
        self.commands.deep("preprocess", *words)

    def _mkdir(self, directory: Path) -> None:
        if self.dry_run:
            self.commands.run("mkdir", "-p", "--", directory)
        else:
            directory.mkdir(parents=True, exist_ok=True)


def _file(prefix: str, language: str) -> Path:
    """The file, or its .gz."""
    path = Path(f"{prefix}.{language}")
    compressed = Path(f"{path}.gz")
    return compressed if not path.exists() and compressed.exists() else path


def _state_of(path: Path) -> State:
    """Empty for a file that is gone."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return ()


def _is_prepared(directory: Path) -> bool:
    return (directory / "data-bin").exists() and (directory / "test_sets").exists()


def _require_name(directory: str) -> Path:
    path = directory.removesuffix("/")
    if not path:
        raise UserError(f"'{directory}' cannot be the output directory")
    if "=" in path:
        raise UserError(f"the first argument must be the output directory, not '{path}'")
    if "," in path:
        # fairseq splits paths at commas.
        raise UserError(f"{path}: fairseq does not support a comma in a path; use another directory")
    return Path(path)


def _parser() -> ScriptParser:
    flags = ScriptParser(
        prog="fairseq-deep prepare",
        # The scripts pass the sets as arguments; RAW and VALID in the environment have other meanings.
        only_flags=("train", "valid", "test", "raw", "changed", "settings_of"),
        description="Prepare a parallel corpus for training: check, tokenise, clean, split into subwords, binarise. "
        "PREFIX names two parallel files PREFIX.SOURCE and PREFIX.TARGET, or these with .gz; UTF-8, one sentence per "
        "line. The same command continues a stopped preparation; with other settings or other text it refuses DIR.",
    )
    flags.add_argument("directory", metavar="DIR", help="the result: raw/, text/, codes, data-bin/, settings, ...")
    flags.add_argument(
        "--train", nargs="+", action="extend", default=[], metavar="PREFIX", help="training text; concatenated"
    )
    flags.add_argument(
        "--valid",
        action="append",
        default=[],
        metavar="PREFIX",
        help="or every-23rd (any number): every 23rd training pair, after cleaning",
    )
    flags.add_argument(
        "--test", nargs="+", action="extend", default=[], metavar="NAME=PREFIX", help="test sets, any names"
    )
    flags.add_argument(
        "--raw",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=PREFIX",
        help="published references of a set, if they differ from the text to tokenise",
    )
    flags.add_argument(
        "--changed",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=CHANGE,...",
        help="how the text of a set differs from its references: apostrophes (' for ’), punctuation (normalised)",
    )
    for each in fields(Settings):
        legal = LEGAL.get(each.name, ())
        help = each.metadata["help"] + (f" [{', '.join(filter(None, legal))}]" if legal else "")
        help += f" (default: {each.default})" if each.default else ""
        flags.add_argument(f"--{each.name.replace('_', '-')}", default=each.default, metavar="VALUE", help=help)
    flags.add_argument(
        "--settings-of",
        metavar="WHAT",
        help="only check the settings of the corpus WHAT: legal, equal to those of DIR, and not changed by "
        "an environment variable (SIZE for --size)",
    )
    flags.add_argument("--dry-run", action="store_true", help="only print the commands")
    return flags


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep prepare DIR --train PREFIX ... --valid PREFIX|every-Nth [--test NAME=PREFIX ...]``."""
    args = _parser().read(argv)
    directory = _require_name(args.directory)
    values = {each.name: getattr(args, each.name) for each in fields(Settings)}
    os.environ["MOSES"] = values["moses"] = values["moses"] or os.environ.get("MOSES", "")
    values["workers"] = values["workers"] or str(core_count())
    if args.settings_of is not None:
        require_only(args.settings_of, Settings(**values), directory, every_of(args.valid[-1] if args.valid else ""))
        return 0
    sets = sets_of(args.train, args.valid, args.test, args.raw, args.changed)
    settings = Settings(**values)
    preparation = Preparation(directory, sets, settings, dry_run=args.dry_run)
    # Check MOSES before the settings record that Perl made the tokens.
    moses.scripts()
    with interruptible():
        preparation.run()
    return 0
