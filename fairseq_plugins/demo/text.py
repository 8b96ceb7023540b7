"""From the user's text files to a binary corpus: check, normalise, tokenise, split into subwords, number.

Every file is checked before anything is written, and all problems are reported together. Tokenisation is Moses'
without XML escapes, the same both ways, so that detokenising a translation gives text like the raw reference.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sacremoses import MosesPunctNormalizer, MosesTokenizer

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.text.bpe import learn, load
from fairseq_plugins.text.lines import write_lines
from fairseq_plugins.text.tokenise import detokeniser

SPLITS = ("train", "valid", "test")
_LINES_NAMED = 5

Say = Callable[[str], None]


@dataclass(frozen=True)
class Corpus:
    """Raw sentences of one parallel corpus: ``sentences[split][language]``, equally many in both languages."""

    source: str
    target: str
    sentences: dict[str, dict[str, list[str]]]

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source, self.target

    def digest(self) -> str:
        """A fingerprint of all the text, for the stamp of what is made from it."""
        state = hashlib.sha256()
        for split in SPLITS:
            for language in self.languages:
                state.update("\n".join([split, language, *self.sentences[split][language], ""]).encode())
        return state.hexdigest()


def read_corpus(directory: Path, source: str, target: str, prefixes: dict[str, str]) -> Corpus:
    """Read and check ``<prefix>.<language>[.gz]`` for each split and both languages.

    ``prefixes`` is the file name of each split without the language, as ``{"valid": "val"}``.

    Raises:
        UserError: with every problem of every file: absent, empty, not UTF-8, a blank sentence, unequal line counts.
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory of text files")
    if source == target:
        raise UserError(f"source and target language are both '{source}'; name two")
    problems: list[str] = []
    sentences: dict[str, dict[str, list[str]]] = {}
    for split in SPLITS:
        sentences[split] = {}
        paths = [_find(directory, prefixes[split], language) for language in (source, target)]
        for language, path in zip((source, target), paths, strict=True):
            try:
                sentences[split][language] = _read_sentences(path)
            except UserError as error:
                problems.extend(error.problems)
        problems.extend(_unequal(paths, list(sentences[split].values())))
    if problems:
        raise UserError(problems)
    return Corpus(source, target, sentences)


def _find(directory: Path, prefix: str, language: str) -> Path:
    plain = directory / f"{prefix}.{language}"
    zipped = plain.with_name(plain.name + ".gz")
    return zipped if zipped.is_file() and not plain.is_file() else plain


def find_prefix(directory: Path, split: str, language: str) -> str:
    """The file name of a split that is present, among the usual ones; the plain name if none is."""
    usual = {"valid": ("valid", "val", "dev"), "test": ("test",)}.get(split, (split,))
    present = [prefix for prefix in usual if _find(directory, prefix, language).is_file()]
    return present[0] if present else split


def _read_sentences(path: Path) -> list[str]:
    raw = _read_bytes(path)
    if not raw.strip():
        raise UserError(f"{path}: the file is empty")
    lines = raw.removesuffix(b"\n").split(b"\n")
    sentences, problems, blank = [], [], []
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problems.append(f"{path}: line {number}: not UTF-8 (byte 0x{line[error.start]:02x})")
            continue
        # All white space becomes one space: some of its characters would be line ends to later tools.
        sentences.append(" ".join(text.split()))
        if not sentences[-1]:
            blank.append(number)
    if blank:
        problems.append(f"{path}: blank sentence in {_some_lines(blank)}")
    if problems:
        raise UserError(problems[:_LINES_NAMED] + _and_more(len(problems), str(path)))
    return sentences


def _read_bytes(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except FileNotFoundError:
        raise UserError(f"{path}: no such file (nor {path.name}.gz)") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def _some_lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_LINES_NAMED])
    more = len(numbers) - _LINES_NAMED
    return f"line{'s' if len(numbers) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")


def _and_more(count: int, path: str) -> list[str]:
    return [f"{path}: and {count - _LINES_NAMED} more lines like these"] if count > _LINES_NAMED else []


def _unequal(paths: Sequence[Path], sentences: Sequence[list[str]]) -> list[str]:
    if len(sentences) < 2 or len(sentences[0]) == len(sentences[1]):
        return []
    counts = [f"{path.name} has {len(lines)} lines" for path, lines in zip(paths, sentences, strict=True)]
    return [f"{paths[0].parent}: {counts[0]} but {counts[1]}; sentence k must translate sentence k"]


class Tokeniser:
    """Moses punctuation normalisation and tokenisation of one language, and the way back."""

    def __init__(self, language: str) -> None:
        self._normalise = MosesPunctNormalizer(lang=language)
        self._tokenise = MosesTokenizer(lang=language)
        self._join = detokeniser(language, unescape=False)

    def split(self, sentence: str) -> str:
        """Tokens of a raw sentence, separated by spaces."""
        normal = self._normalise.normalize(sentence)
        tokens = self._tokenise.tokenize(normal, aggressive_dash_splits=True, return_str=True, escape=False)
        return str(tokens)

    def join(self, tokens: str) -> str:
        """Plain text of space-separated tokens."""
        return self._join(tokens)


@dataclass(frozen=True)
class TextSettings:
    """What the subword text depends on, besides the text."""

    bpe_operations: int
    max_length: int
    """Longest training sentence kept, in subwords."""


def write_subwords(corpus: Corpus, settings: TextSettings, directory: Path, say: Say) -> None:
    """Write ``codes`` and ``<split>.<language>`` in subwords to ``directory``.

    Training pairs with a side longer than ``settings.max_length`` are dropped; other splits keep every sentence.

    Raises:
        UserError: no training pair is short enough, a sentence has no token, or all words are single letters.
    """
    tokens = {language: _tokenise_all(corpus, language, say) for language in corpus.languages}
    say(f"learning {settings.bpe_operations} subword merges")
    training = chain(*(tokens[language]["train"] for language in corpus.languages))
    write_lines(directory / "codes", learn(training, settings.bpe_operations, "the training text"))
    bpe = load(directory / "codes")
    for split in SPLITS:
        sides = [[bpe.process_line(line) for line in tokens[language][split]] for language in corpus.languages]
        if split == "train":
            sides = _drop_long(sides, settings.max_length, say)
        for language, side in zip(corpus.languages, sides, strict=True):
            write_whole(directory / f"{split}.{language}", "".join(line + "\n" for line in side))


def _tokenise_all(corpus: Corpus, language: str, say: Say) -> dict[str, list[str]]:
    tokeniser = Tokeniser(language)
    tokens: dict[str, list[str]] = {}
    for split in SPLITS:
        sentences = corpus.sentences[split][language]
        say(f"tokenising {split}.{language}: {len(sentences):,} sentences")
        tokens[split] = [tokeniser.split(sentence) for sentence in sentences]
        bare = [number for number, line in enumerate(tokens[split], start=1) if not line.strip()]
        if bare:
            raise UserError(f"{split}.{language}: a sentence without any token in {_some_lines(bare)}")
    return tokens


def _drop_long(sides: list[list[str]], limit: int, say: Say) -> list[list[str]]:
    kept = [pair for pair in zip(*sides, strict=True) if all(len(side.split()) <= limit for side in pair)]
    if not kept:
        raise UserError(f"no training pair has at most {limit} subwords on both sides; raise --max-length")
    dropped = len(sides[0]) - len(kept)
    say(f"training pairs: {len(kept):,}; dropped as longer than {limit} subwords: {dropped:,}")
    return [list(side) for side in zip(*kept, strict=True)]
