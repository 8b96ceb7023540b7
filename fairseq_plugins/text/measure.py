"""Measure a directory of text or of binarised text: rows, tokens, types, checksums and faults.

Every file is read once, in blocks; binarised files through fairseq's own memory-mapped index.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum
from fairseq_plugins.lines import open_bytes, raw_lines

BLOCK = 1 << 24
"""Bytes of text, or of binarised text, per block."""

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
        counted: total of the counts in the file, the number of words that it was made from.
        sha256: of the file.
        faults: problems of the file.
    """

    path: str
    language: str
    types: int = 0
    counted: int = 0
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
    if (directory / "text").is_dir() or (directory / "data-bin").is_dir():
        found = _prepared(directory)
    else:
        found = Directory(str(directory), "binarised" if any(directory.glob("*.idx")) else "text")
        _add_binarised(found, directory, directory, {})
        _add_text(found, directory, directory, "plain")
    if not found.files:
        raise UserError(
            f"{directory}: contains no corpus: no text/, data-bin/, *.idx, or pairs such as train.de and train.en"
        )
    _add_codes(found, directory)
    found.languages = sorted({file.language for file in found.files} - {""})
    return found


def _prepared(directory: Path) -> Directory:
    found = Directory(str(directory), "prepared")
    for kind in ("raw", "text"):
        if (directory / kind).is_dir():
            _add_text(found, directory, directory / kind, kind)
    if (directory / "data-bin").is_dir():
        _add_binarised(found, directory, directory / "data-bin", _test_sets(directory / "test_sets"))
    return found


def _test_sets(path: Path) -> dict[str, str]:
    """Names of test sets by fairseq's names for them (``test1``), from lines of two columns."""
    if not path.is_file():
        return {}
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line)
    return {columns[0]: columns[1] for columns in lines if len(columns) == 2}


def _add_codes(found: Directory, directory: Path) -> None:
    for path in (directory / "code", directory / "codes", *sorted(directory.glob("codes.*"))):
        if path.is_file() and path.suffix != ".partial":
            found.codes[path.name] = checksum(path)


# Text ---------------------------------------------------------------------------------------------------------------


def _add_text(found: Directory, root: Path, directory: Path, kind: str) -> None:
    paths = sorted(path for path in directory.iterdir() if path.is_file())
    # The text of a language model, as prepare_enwik8.sh writes it, has no language in its name.
    languages = _languages(paths) or ({"txt"} if kind == "text" else set())
    for path in paths:
        stem, _, ending = path.name.removesuffix(".gz").rpartition(".")
        if not stem or stem == "dict" or ending not in languages:
            continue
        split, what = _split_and_kind(stem, kind)
        language = ending if ending != "txt" else ""
        file = File(str(path.relative_to(root)), what, _SPLITS.get(split, split), language)
        measure_text(path, file)
        found.files.append(file)


def _split_and_kind(stem: str, kind: str) -> tuple[str, str]:
    """Split and kind of a file name: ``test.tok`` is ``test`` in tokens."""
    if kind == "plain":
        split, *steps = stem.split(".")
        return split, "tok" if "tok" in steps and "bpe" not in steps else kind
    if kind == "text" and stem.endswith(".tok"):
        return stem.removesuffix(".tok"), "tok"
    return stem, kind


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
    state, types = hashlib.sha256(), set()
    stray_returns, marked = 0, False
    ending = b"\n"
    try:
        for block in _blocks(path):
            state.update(block)
            text = _decoded(block, file)
            lines = text.removesuffix("\n").split("\n")
            words = text.split()
            types.update(words)
            marked = marked or (not file.rows and text.startswith("\ufeff"))
            file.rows += len(lines)
            file.tokens += len(words) + len(lines)
            file.empty += sum(not line or line.isspace() for line in lines)
            stray_returns += text.count("\r") - text.count("\r\n")
            ending = block[-1:]
    except (gzip.BadGzipFile, EOFError, zlib.error):
        file.faults.append("not a whole gzip file")
    file.types, file.sha256 = len(types), state.hexdigest()
    if not file.rows and not file.faults:
        file.faults.append("the file is empty")
    # References stay as published and are split only at line feeds.
    if stray_returns and file.kind != "raw":
        file.faults.append(f"{stray_returns:,} carriage returns, which fairseq reads as ends of lines")
    if marked and file.kind != "raw":
        file.faults.append("line 1 begins with a byte order mark, which fairseq reads as a part of the first word")
    if ending != b"\n":
        file.faults.append("the last line has no end: the file may be truncated")


def _blocks(path: Path) -> Iterator[bytes]:
    """The file in blocks of whole lines."""
    rest = b""
    with open_bytes(path) as stream:
        while block := stream.read(BLOCK):
            lines, end, begun = block.rpartition(b"\n")
            if not end:
                rest += block
                continue
            yield rest + lines + end
            rest = begun
    if rest:
        yield rest


def _decoded(block: bytes, file: File) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        if not any("UTF-8" in fault for fault in file.faults):
            line = file.rows + block.count(b"\n", 0, error.start) + 1
            file.faults.append(f"line {line:,} is not UTF-8 (byte 0x{block[error.start]:02x})")
        return block.decode(errors="replace")


def rows_of(found: Directory, file: File) -> Iterator[bytes]:
    """The rows of a measured file, which has no faults: lines without white space at their ends, or token numbers."""
    from fairseq.data import data_utils

    path = Path(found.path, file.path)
    if file.kind != "binarised":
        return map(bytes.strip, raw_lines(path))
    with _quiet():
        dataset = data_utils.load_indexed_dataset(str(path.with_suffix("")))
    return (np.asarray(dataset[number]).tobytes() for number in range(file.rows))


# Binarised text -----------------------------------------------------------------------------------------------------


def _add_binarised(found: Directory, root: Path, directory: Path, names: dict[str, str]) -> None:
    for path in sorted(directory.glob("dict*.txt")):
        found.vocabularies.append(_vocabulary(path, root))
    types = {vocabulary.language: vocabulary.types for vocabulary in found.vocabularies if not vocabulary.faults}
    for prefix in sorted({path.with_suffix("") for ending in ("idx", "bin") for path in directory.glob(f"*.{ending}")}):
        match = _BINARISED.fullmatch(prefix.name)
        split = match["split"] if match else prefix.name
        language = match["language"] if match else ""
        split = names.get(split, _SPLITS.get(split, split))
        file = File(f"{prefix.relative_to(root)}.bin", "binarised", split, language)
        _measure_binarised(prefix, file, types.get(language))
        found.files.append(file)


def _vocabulary(path: Path, root: Path) -> Vocabulary:
    from fairseq.data import Dictionary

    language = path.name.removeprefix("dict.").removesuffix(".txt") if path.name != "dict.txt" else ""
    result = Vocabulary(str(path.relative_to(root)), language, sha256=checksum(path))
    try:
        dictionary = Dictionary.load(str(path))
    except OSError:
        raise
    except Exception as error:  # fairseq raises ValueError, RuntimeError and Exception
        result.faults.append(f"not a dictionary: {str(error).splitlines()[0]}")
        return result
    result.types = len(dictionary)
    result.counted = sum(dictionary.count[dictionary.nspecial :])
    return result


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress fairseq's messages about each file that it opens, or fails to open."""
    logger = logging.getLogger("fairseq.data.data_utils")
    level, hook = logger.level, sys.unraisablehook
    logger.setLevel(logging.WARNING)
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        logger.setLevel(level)
        sys.unraisablehook = hook


def _measure_binarised(prefix: Path, file: File, vocabulary_types: int | None) -> None:
    dataset = _opened(prefix, file)
    if dataset is None:
        return
    highest = _fill_in(prefix, file, dataset)
    if vocabulary_types is None:
        file.faults.append(f"there is no usable dictionary for it ({_dictionary_name(file.language)})")
    elif highest >= vocabulary_types:
        file.faults.append(
            f"token number {highest:,} is not in {_dictionary_name(file.language)}, which has {vocabulary_types:,} "
            "types: it was binarised with another dictionary"
        )


def _dictionary_name(language: str) -> str:
    return f"dict.{language}.txt" if language else "dict.txt"


def _opened(prefix: Path, file: File) -> Any:
    """The data set as fairseq opens it, or None and a fault."""
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


def _fill_in(prefix: Path, file: File, dataset: Any) -> int:
    """Count the content of ``dataset`` and return the highest token number."""
    sizes = np.asarray(dataset.sizes)
    file.rows, file.tokens, file.empty = len(sizes), int(sizes.sum()), int((sizes <= 1).sum())
    if not file.rows:
        file.faults.append("it contains no sentence")
    state, counts, read = hashlib.sha256(), np.zeros(0, dtype=np.int64), 0
    for block, raw in _tokens(prefix, dataset):
        state.update(raw)
        read += len(block)
        if len(block) and block.min() >= 0:
            counts = _sum_of(counts, np.bincount(block))
    file.sha256 = state.hexdigest()
    if read != file.tokens:
        file.faults.append(f"its index lists {file.tokens:,} tokens, but it has {read:,}: the file is truncated")
    file.unk, file.types = _unk_and_types(counts)
    return len(counts) - 1


def _sum_of(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    result = longer.copy()
    result[: len(shorter)] += shorter
    return result


def _tokens(prefix: Path, dataset: Any) -> Iterator[tuple[np.ndarray, bytes]]:
    """The token numbers of the .bin file, in blocks, each with its bytes."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset, data_file_path

    if not isinstance(dataset, MMapIndexedDataset):
        for number in range(len(dataset)):
            row = np.asarray(dataset[number])
            yield row, row.tobytes()
        return
    kind = np.dtype(dataset._index.dtype)
    with open(data_file_path(str(prefix)), "rb") as stream:
        while raw := stream.read(BLOCK):
            yield np.frombuffer(raw[: len(raw) - len(raw) % kind.itemsize], dtype=kind), raw


def _unk_and_types(counts: np.ndarray) -> tuple[int, int]:
    """Number of unknown tokens, and of types without ``</s>``; fairseq's symbols have fixed numbers."""
    from fairseq.data import Dictionary

    symbols = Dictionary()
    seen = np.flatnonzero(counts)
    unknown = int(counts[symbols.unk()]) if len(counts) > symbols.unk() else 0
    return unknown, int((seen != symbols.eos()).sum())
