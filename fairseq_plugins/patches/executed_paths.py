"""The path of a text in FASTA's format is a part of a shell command; a directory with ``train.fasta`` is taken for one.

No option says so: a directory of a language model is enough. Here the file is read, without a command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.data.fasta_dataset import FastaDataset, fasta_file_path


def read_index(_: Callable[..., Any], self: FastaDataset, path: str) -> tuple[Any, Any]:
    """``_build_index``: for each sequence the bytes before it, and how many letters it has; int64, (sequences,)."""
    offsets, sizes, place = [], [], 0
    with open(fasta_file_path(path), "rb") as stream:
        for line in stream:
            if line.startswith(b">"):
                offsets.append(place)
                sizes.append(0)
            elif sizes:
                sizes[-1] += len(line.strip())
            place += len(line)
    return np.array(offsets, dtype=np.int64), np.array(sizes, dtype=np.int64)


WRAPPED = ((FastaDataset, "_build_index", read_index),)
