"""Measure a directory of text or of binarised text: rows, tokens, types, checksums and faults."""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum
from fairseq_plugins.lines import raw_lines

BLOCK = 1 << 23
"""Token numbers of binarised text that are in memory at once."""

_NO_LANGUAGE = set("bin gz idx json log md model py sgm sh tsv txt vocab xml yaml".split())
_SPLITS = {"val": "valid", "dev": "valid"}
_BINARISED = re.compile(r"(?P<split>[^.]+)\.(?P<pair>[^.]+-[^.]+)\.(?P<language>[^.]+)")


@dataclass
class File:
    """One file of sentences.

    Args:
        path: relative to the measured directory.
        kind: ``raw`` (as published), ``tok`` (tokenised), ``text`` (in subwords), ``binarised``, or ``plain``: text in
            an unknown form.
        split: ``train``, ``valid``, ``test`` or the name of a test set.
        language: empty for a language model.
        rows: sentences.
        tokens: as fairseq counts them, with one ``</s>`` for each row.
        types: different tokens.
        empty: rows without a token.
        unk: tokens that the dictionary does not have; None for text.
        sha256: of the text before compression, or of the ``.bin`` file.
        faults: problems of the file by itself, one phrase each.
    """

    path: str
    kind: str
    split: str
    language: str
    rows: int = 0
    tokens: int = 0
    types: int = 0
    empty: int = 0
    unk: int | None = None
    sha256: str = ""
    faults: list[str] = field(default_factory=list)


@dataclass
class Vocabulary:
    """A dictionary of fairseq's.

    Args:
        path: relative to the measured directory.
        language: empty for a language model.
        types: as fairseq counts them, with its four symbols and its padding.
        sha256: of the file.
        faults: problems of the file.
    """

    path: str
    language: str
    types: int = 0
    sha256: str = ""
    faults: list[str] = field(default_factory=list)


@dataclass
class Directory:
    """Everything measured under one directory; ``layout`` is ``prepared``, ``binarised`` or ``text``."""

    path: str
    layout: str
    languages: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    vocabularies: list[Vocabulary] = field(default_factory=list)
    codes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the byte-pair merges, by the names of their files: ``codes``, or ``codes.<language>`` each."""

    @property
    def joined(self) -> bool:
        """Whether all languages share one dictionary."""
        return len({vocabulary.sha256 for vocabulary in self.vocabularies}) == 1

    def of_split(self, split: str) -> list[File]:
        """The files of one split."""
        return [file for file in self.files if file.split == split]


def measure(directory: Path) -> Directory:
    """Measure a directory for :mod:`fairseq_plugins.text.verify`.

    Raises:
        UserError: the directory does not exist or contains neither text nor binarised text.
        OSError: a file cannot be read.
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: {'not a directory' if directory.exists() else 'no such directory'}")
    prepared = [(directory / kind, kind) for kind in ("raw", "text") if (directory / kind).is_dir()]
    binarised = directory / "data-bin"
    if prepared or binarised.is_dir():
        measured = Directory(str(directory), "prepared")
    else:
        measured = Directory(str(directory), "binarised" if any(directory.glob("*.idx")) else "text")
        prepared, binarised = [(directory, "plain")], directory
    for place, kind in prepared:
        _add_text(measured, place, kind)
    if binarised.is_dir():
        _add_binarised(measured, binarised)
    if not measured.files:
        raise UserError(
            f"{directory}: contains no corpus: no text/, data-bin/, *.idx, or pairs such as train.de and train.en"
        )
    for path in (directory / "code", directory / "codes", *sorted(directory.glob("codes.*"))):
        if path.is_file() and path.suffix != ".partial":
            measured.codes[path.name] = checksum(path)
    measured.languages = sorted({file.language for file in measured.files} - {""})
    return measured


def rows_of(measured: Directory, file: File) -> Iterator[bytes]:
    """The rows of a measured file, which has no faults: lines without white space at their ends, or token numbers."""
    path = Path(measured.path, file.path)
    if file.kind != "binarised":
        return map(bytes.strip, raw_lines(path))
    dataset = _opened(path.with_suffix(""), file)
    return (np.asarray(dataset[number]).tobytes() for number in range(file.rows))


# Text ---------------------------------------------------------------------------------------------------------------


def _add_text(measured: Directory, directory: Path, kind: str) -> None:
    paths = sorted(path for path in directory.iterdir() if path.is_file())
    # The text of a language model, as prepare_enwik8.sh writes it, has no language in its name.
    languages = _languages(paths) or ({"txt"} if kind == "text" else set())
    for path in paths:
        stem, _, ending = path.name.removesuffix(".gz").rpartition(".")
        if not stem or stem == "dict" or ending not in languages:
            continue
        split, *steps = stem.split(".") if kind == "plain" else [stem.removesuffix(".tok")]
        tokenised = stem.endswith(".tok") if kind == "text" else "tok" in steps and "bpe" not in steps
        file = File(
            path=str(path.relative_to(measured.path)),
            kind="tok" if tokenised else kind,
            split=_SPLITS.get(split, split),
            language="" if ending == "txt" else ending,
        )
        measure_text(path, file)
        measured.files.append(file)


def _languages(paths: list[Path]) -> set[str]:
    """Suffixes that are languages: those in which files differ, or, without such files, all of two letters."""
    stems: dict[str, set[str]] = {}
    for path in paths:
        stem, _, ending = path.name.removesuffix(".gz").rpartition(".")
        if stem and ending not in _NO_LANGUAGE:
            stems.setdefault(stem, set()).add(ending)
    paired = {ending for endings in stems.values() if len(endings) > 1 for ending in endings}
    return paired or {ending for endings in stems.values() for ending in endings if len(ending) == 2}


def measure_text(path: Path, file: File) -> None:
    """Fill in ``file`` from the text at ``path``, which may be compressed.

    Raises:
        OSError: it cannot be read.
    """
    digest, types = hashlib.sha256(), set()
    stray_returns, line = 0, b"\n"
    faults: dict[str, str] = {}
    try:
        for line in raw_lines(path):
            digest.update(line)
            file.rows += 1
            words = _words(line, file.rows, faults)
            if file.rows == 1 and line.startswith(b"\xef\xbb\xbf"):
                faults["mark"] = "line 1 begins with a byte order mark, which fairseq reads as a part of the first word"
            types.update(words)
            file.tokens += len(words) + 1
            file.empty += not words
            stray_returns += line.count(b"\r") - line.endswith(b"\r\n")
    except UserError as error:
        faults["whole"] = str(error).removeprefix(f"{path}: ")
    file.types, file.sha256 = len(types), digest.hexdigest()
    if stray_returns:
        faults["return"] = f"{stray_returns:,} carriage returns, which fairseq reads as ends of lines"
    if file.kind == "raw":
        # References stay as published and are split only at line feeds.
        faults.pop("mark", None)
        faults.pop("return", None)
    if not file.rows and not faults:
        faults["empty"] = "the file is empty"
    if not line.endswith(b"\n"):
        faults["end"] = "the last line has no end: the file may be truncated"
    file.faults += faults.values()


def _words(line: bytes, number: int, faults: dict[str, str]) -> list[str]:
    try:
        return line.decode().split()
    except UnicodeDecodeError as error:
        faults.setdefault("UTF-8", f"line {number:,} is not UTF-8 (byte 0x{line[error.start]:02x})")
        return line.decode(errors="replace").split()


# Binarised text -----------------------------------------------------------------------------------------------------


def _add_binarised(measured: Directory, directory: Path) -> None:
    named = Path(measured.path) / "test_sets"
    lines = named.read_text(encoding="utf-8").splitlines() if named.is_file() else []
    # Names of test sets by fairseq's names for them (``test1``).
    names = dict(line.split("\t") for line in lines if line.count("\t") == 1)
    for path in sorted(directory.glob("dict*.txt")):
        measured.vocabularies.append(_vocabulary(path, str(path.relative_to(measured.path))))
    types = {vocabulary.language: vocabulary.types for vocabulary in measured.vocabularies if not vocabulary.faults}
    for prefix in sorted({path.with_suffix("") for ending in ("idx", "bin") for path in directory.glob(f"*.{ending}")}):
        match = _BINARISED.fullmatch(prefix.name)
        split, language = (match["split"], match["language"]) if match else (prefix.name, "")
        name = f"{prefix.relative_to(measured.path)}.bin"
        file = File(name, "binarised", names.get(split, _SPLITS.get(split, split)), language)
        _measure_binarised(prefix, file, types.get(language))
        measured.files.append(file)


def _vocabulary(path: Path, name: str) -> Vocabulary:
    from fairseq.data import Dictionary

    language = path.name.removeprefix("dict.").removesuffix(".txt") if path.name != "dict.txt" else ""
    vocabulary = Vocabulary(name, language, sha256=checksum(path))
    try:
        vocabulary.types = len(Dictionary.load(str(path)))
    except OSError:
        raise
    except Exception as error:  # fairseq raises ValueError, RuntimeError and Exception
        vocabulary.faults.append(f"not a dictionary: {str(error).splitlines()[0]}")
    return vocabulary


def _measure_binarised(prefix: Path, file: File, vocabulary_types: int | None) -> None:
    dataset = _opened(prefix, file)
    if dataset is None:
        return
    sizes = np.asarray(dataset.sizes)
    file.rows, file.tokens, file.empty = len(sizes), int(sizes.sum()), int((sizes <= 1).sum())
    file.sha256 = checksum(prefix.with_name(prefix.name + ".bin"))
    if not file.rows:
        file.faults.append("it contains no sentence")
    counts = _counts(prefix, dataset)
    if (read := int(counts.sum())) != file.tokens:
        file.faults.append(f"its index lists {file.tokens:,} tokens, but it has {read:,}: the file is truncated")
    from fairseq.data import Dictionary

    symbols, seen = Dictionary(), np.flatnonzero(counts)
    file.unk = int(counts[symbols.unk()]) if len(counts) > symbols.unk() else 0
    file.types = int((seen != symbols.eos()).sum())
    name = f"dict.{file.language}.txt" if file.language else "dict.txt"
    if vocabulary_types is None:
        file.faults.append(f"there is no usable dictionary for it ({name})")
    elif len(counts) > vocabulary_types:
        file.faults.append(
            f"token number {len(counts) - 1:,} is not in {name}, which has {vocabulary_types:,} types: it was "
            "binarised with another dictionary"
        )


def _opened(prefix: Path, file: File) -> Any:
    """The data set as fairseq opens it, or None and a fault; without fairseq's messages about each file."""
    from fairseq.data import data_utils

    with _quiet():
        try:
            dataset = data_utils.load_indexed_dataset(str(prefix))
        except OSError:
            raise
        except Exception as error:  # a damaged index can raise anything
            file.faults.append(f"fairseq cannot open it: {(str(error) or type(error).__name__).splitlines()[0]}")
            return None
    if dataset is None:
        file.faults.append("the .bin or the .idx file is missing, or of a kind that fairseq does not know")
    return dataset


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("fairseq.data.data_utils")
    level, hook = logger.level, sys.unraisablehook
    logger.setLevel(logging.WARNING)
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        logger.setLevel(level)
        sys.unraisablehook = hook


def _counts(prefix: Path, dataset: Any) -> np.ndarray:
    """How often each token number occurs in the .bin file, up to the highest."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset, data_file_path

    counts = np.zeros(0, dtype=np.int64)
    for block in (
        _blocks(data_file_path(str(prefix)), np.dtype(dataset._index.dtype))
        if isinstance(dataset, MMapIndexedDataset)
        else (np.asarray(dataset[number]) for number in range(len(dataset)))
    ):
        new = np.bincount(block[block >= 0])
        counts = np.pad(counts, (0, max(0, len(new) - len(counts))))
        counts[: len(new)] += new
    return counts


def _blocks(path: str, kind: np.dtype) -> Iterator[np.ndarray]:
    with open(path, "rb") as stream:
        while len(block := np.fromfile(stream, kind, BLOCK)):
            yield block
