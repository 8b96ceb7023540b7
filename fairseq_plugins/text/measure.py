"""Count a directory of text or of binarised text: rows, tokens, types, checksums, and what is wrong with each file."""

from __future__ import annotations

import hashlib
import re
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum
from fairseq_plugins.lines import raw_lines
from fairseq_plugins.process import importing

BLOCK = 1 << 23
"""Token numbers of binarised text that are in memory at once."""

_NO_LANGUAGE = set("bin gz idx json log md model py sgm sh tsv txt vocab xml yaml".split())
_SPLITS = {"val": "valid", "dev": "valid"}
_BINARISED = re.compile(r"(?P<split>[^.]+)\.(?P<pair>[^.]+-[^.]+)\.(?P<language>[^.]+)")


@dataclass
class File:
    """One file of a corpus.

    Args:
        path: relative to the measured directory.
        kind: ``raw`` (as published), ``tok`` (tokenised), ``text`` (in subwords), ``plain`` (text in an unknown form),
            ``binarised``, ``dictionary`` (fairseq's), or ``codes`` (byte-pair merges).
        split: ``train``, ``valid``, ``test`` or the name of a test set; empty for dictionary and codes.
        language: empty for a language model.
        rows: sentences.
        tokens: as fairseq counts them, with one ``</s>`` for each row.
        types: different tokens; of a dictionary, with fairseq's four symbols and its padding.
        empty: rows without a token.
        unk: tokens that the dictionary does not have; None for text.
        sha256: of the text before compression, of the ``.bin`` file, or of the whole file.
        faults: problems of the file by itself, one phrase each.
    """

    path: str
    kind: str
    split: str = ""
    language: str = ""
    rows: int = 0
    tokens: int = 0
    types: int = 0
    empty: int = 0
    unk: int | None = None
    sha256: str = ""
    faults: list[str] = field(default_factory=list)


def measure(directory: Path) -> list[File]:
    """Count a directory: one that a preparation has written, one of fairseq-preprocess, or one of text files.

    Raises:
        UserError: the directory does not exist or contains neither text nor binarised text.
        OSError: a file cannot be read.
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: {'not a directory' if directory.exists() else 'no such directory'}")
    folders = {kind: directory / kind for kind in ("raw", "text") if (directory / kind).is_dir()}
    binarised = directory / "data-bin"
    if not folders and not binarised.is_dir():
        folders, binarised = {"plain": directory}, directory
    files = [file for kind, folder in folders.items() for file in _measure_texts(directory, folder, kind)]
    files += _measure_all_binarised(directory, binarised)
    if not any(file.split for file in files):
        raise UserError(
            f"{directory}: contains no corpus: no text/, data-bin/, *.idx, or pairs such as train.de and train.en"
        )
    merges = sorted({*directory.glob("code"), *directory.glob("codes"), *directory.glob("codes.??")})
    return files + [File(path.name, "codes", sha256=checksum(path)) for path in merges]


def rows_of(directory: Path, file: File) -> Iterator[bytes]:
    """The rows of a measured file, which has no faults: lines without white space at their ends, or token numbers."""
    path = directory / file.path
    if file.kind != "binarised":
        return map(bytes.strip, raw_lines(path))
    dataset = _opened(path.with_suffix(""), file)
    return (np.asarray(dataset[number]).tobytes() for number in range(file.rows))


def _measure_texts(directory: Path, folder: Path, kind: str) -> Iterator[File]:
    """The files whose endings are languages, so those in which files differ; ``text/train.txt`` of a language model."""
    named = [(path, *path.name.removesuffix(".gz").rpartition(".")[::2]) for path in sorted(folder.iterdir())]
    stems = Counter(stem for path, stem, ending in named if path.is_file() and ending not in _NO_LANGUAGE)
    languages = {ending for _, stem, ending in named if stem != "dict" and stems[stem] > 1} - _NO_LANGUAGE
    for path, stem, ending in named:
        if stem == "dict" or ending not in (languages or ({"txt"} if kind == "text" else ())):
            continue
        split = stem.partition(".")[0] if kind == "plain" else stem.removesuffix(".tok")
        file = File(
            path=str(path.relative_to(directory)),
            kind="tok" if stem.endswith(".tok") else kind,
            split=_SPLITS.get(split, split),
            language="" if ending == "txt" else ending,
        )
        _measure_text(path, file)
        yield file


def _measure_text(path: Path, file: File) -> None:
    """Fill in ``file`` from the text at ``path``, which may be compressed."""
    digest, types = hashlib.sha256(), set()
    returns, line = 0, b"\n"
    try:
        for line in raw_lines(path):
            digest.update(line)
            file.rows += 1
            returns += line.count(b"\r") - line.endswith(b"\r\n")
            words = _words(line, file)
            types.update(words)
            file.tokens += len(words) + 1
            file.empty += not words
    except UserError as error:
        file.faults.append(str(error).removeprefix(f"{path}: "))
    file.types, file.sha256 = len(types), digest.hexdigest()
    if returns and file.kind != "raw":
        file.faults.append(f"{returns:,} carriage returns, which fairseq reads as ends of lines")
    if not file.rows and not file.faults:
        file.faults.append("the file is empty")
    if not line.endswith(b"\n"):
        file.faults.append("the last line has no end: the file may be truncated")


def _words(line: bytes, file: File) -> list[str]:
    # References stay as published and are split only at line feeds.
    if file.rows == 1 and line.startswith(BOM_UTF8) and file.kind != "raw":
        file.faults.append("line 1 begins with a byte order mark, which fairseq reads as a part of the first word")
    try:
        return line.decode().split()
    except UnicodeDecodeError as error:
        if not any("UTF-8" in fault for fault in file.faults):
            file.faults.append(f"line {file.rows:,} is not UTF-8 (byte 0x{line[error.start]:02x})")
        return line.decode(errors="replace").split()


def _measure_all_binarised(directory: Path, folder: Path) -> Iterator[File]:
    with importing():
        from fairseq.data import Dictionary

    types: dict[str, int] = {}
    for path in sorted(folder.glob("dict*.txt")):
        language = path.name.removeprefix("dict").removesuffix("txt").strip(".")
        file = File(str(path.relative_to(directory)), "dictionary", language=language, sha256=checksum(path))
        try:
            file.types = types[language] = len(Dictionary.load(str(path)))
        except OSError:
            raise
        except Exception as error:  # fairseq raises ValueError, RuntimeError and Exception
            file.faults.append(f"not a dictionary: {str(error).splitlines()[0]}")
        yield file
    named = directory / "test_sets"
    lines = named.read_text(encoding="utf-8").splitlines() if named.is_file() else []
    # Names of test sets by fairseq's names for them (``test1``).
    names = dict(line.split("\t") for line in lines if line.count("\t") == 1)
    for prefix in sorted({path.with_suffix("") for ending in ("idx", "bin") for path in folder.glob(f"*.{ending}")}):
        match = _BINARISED.fullmatch(prefix.name)
        split, language = (match["split"], match["language"]) if match else (prefix.name, "")
        split = names.get(split, _SPLITS.get(split, split))
        file = File(f"{prefix.relative_to(directory)}.bin", "binarised", split, language)
        _measure_binarised(prefix, file, types.get(language))
        yield file


def _measure_binarised(prefix: Path, file: File, types_of_dictionary: int | None) -> None:
    from fairseq.data import Dictionary

    dataset = _opened(prefix, file)
    if dataset is None:
        return
    path = prefix.with_name(prefix.name + ".bin")
    sizes = np.asarray(dataset.sizes)
    file.rows, file.tokens, file.empty = len(sizes), int(sizes.sum()), int((sizes <= 1).sum())
    file.sha256 = checksum(path)
    if not file.rows:
        file.faults.append("it contains no sentence")
    counts = np.zeros(0, dtype=np.int64)
    with open(path, "rb") as stream:
        while len(block := np.fromfile(stream, dataset._index.dtype, BLOCK)):
            new = np.bincount(block[block >= 0], minlength=len(counts))
            new[: len(counts)] += counts
            counts = new
    if (read := int(counts.sum())) != file.tokens:
        file.faults.append(f"its index lists {file.tokens:,} tokens, but it has {read:,}: the file is truncated")
    symbols, seen = Dictionary(), np.flatnonzero(counts)
    file.unk = int(counts[symbols.unk()]) if len(counts) > symbols.unk() else 0
    file.types = int((seen != symbols.eos()).sum())
    name = f"dict.{file.language}.txt" if file.language else "dict.txt"
    if types_of_dictionary is None:
        file.faults.append(f"there is no usable dictionary for it ({name})")
    elif len(counts) > types_of_dictionary:
        file.faults.append(
            f"token number {len(counts) - 1:,} is not in {name}, which has {types_of_dictionary:,} types: it was "
            "binarised with another dictionary"
        )


def _opened(prefix: Path, file: File) -> Any:
    """The data set as fairseq opens it, or None and a fault."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    if not MMapIndexedDataset.exists(str(prefix)):
        file.faults.append("the .bin or the .idx file is missing")
        return None
    # The destructor of a data set that fairseq could not open complains of what it lacks.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        return MMapIndexedDataset(str(prefix))
    except OSError:
        raise
    except Exception as error:  # a damaged index can raise anything
        file.faults.append(f"fairseq cannot open it: {(str(error) or type(error).__name__).splitlines()[0]}")
        return None
    finally:
        sys.unraisablehook = hook
