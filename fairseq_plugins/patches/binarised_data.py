"""Binarised text with a damaged index is misread; the prepared directory around ``data-bin`` ends in a stack trace.

* fairseq compares nothing: with other pointers, lengths or bytes a number each sentence is cut from another place of
  the ``.bin`` file. An index has redundant numbers, so each is compared with its own sums and with the size of that
  file; dictionaries and indices, with the checksums of those that were made.
* The directory of ``fairseq-deep prepare`` ends in a stack trace. Every command takes both here.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import tasks
from fairseq.data import indexed_dataset

from fairseq_plugins.errors import UserError
from fairseq_plugins.sums import QUICK, binarised_in, require_sums

HEADER = struct.Struct("<9sQBQ")
"""Magic, version, type of the numbers, sentences; then int32 lengths and int64 places of the sentences."""


def problem_of(index: Path, data: Path) -> str:
    """Compare an index of fairseq's ``mmap`` kind with itself and with its ``.bin`` file; empty if both are sound."""
    with open(index, "rb") as stream:
        magic, version, code, count = HEADER.unpack(stream.read(HEADER.size).ljust(HEADER.size))
    if (magic, version) != (indexed_dataset.MMapIndexedDataset.Index._HDR_MAGIC, 1):
        return "not an index of fairseq, or of another version"
    if code not in indexed_dataset._code_to_dtype or index.stat().st_size != HEADER.size + 12 * count or not count:
        return "it has not the size that its beginning states"
    sizes = np.fromfile(index, np.int32, count, offset=HEADER.size)
    places = np.fromfile(index, np.int64, count, offset=HEADER.size + sizes.nbytes)
    ends = np.cumsum(sizes, dtype=np.int64) * np.dtype(indexed_dataset._code_to_dtype[code]).itemsize
    if sizes.min() < 0 or places[0] != 0 or not np.array_equal(places[1:], ends[:-1]):
        return "its sentences do not follow each other"
    size = data.stat().st_size
    return "" if ends[-1] == size else f"{data.name} has {size:,} bytes, not {ends[-1]:,}"


def make_sound(make: Callable[..., Any], path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
    """``make_dataset``, or a UserError for damaged files; a file without a known beginning is taken for an old kind."""
    index, data = Path(f"{path}.idx"), Path(f"{path}.bin")
    known = index.is_file() and data.is_file() and indexed_dataset.infer_dataset_impl(path) in ("mmap", None)
    if known and (problem := problem_of(index, data)):
        raise UserError(f"{index}: damaged: {problem}; binarise the text again")
    return make(path, impl, *args, **kwargs)


def setup_on_binarised(setup_task: Callable[..., Any], cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """``setup_task``, which every command calls before it reads data; checkpoints hold the directory that is read."""
    data = getattr(cfg, "data", None)
    if isinstance(data, str):
        if (inner := binarised_in(data)) != data:
            cfg.data = inner
        for directory in inner.split(":"):
            require_sums(Path(directory), *QUICK)
    return setup_task(cfg, *args, **kwargs)


WRAPPED = ((indexed_dataset, "make_dataset", make_sound), (tasks, "setup_task", setup_on_binarised))
