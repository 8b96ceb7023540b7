"""A damaged index of binarised text, and data that has changed since it was made, are one line before a training."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from fairseq.data.data_utils import load_indexed_dataset

from fairseq_plugins import sums
from fairseq_plugins.patches.damaged_index import HEADER
from tests import toy
from tests.refusals import line_of

NAME = "train.de-en.de"


@pytest.fixture
def data(toy_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_data, tmp_path / "data"))


def test_what_fairseq_has_written_is_read(data: Path) -> None:
    assert len(load_indexed_dataset(str(data / NAME))) > 0


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, b"X", "not an index of fairseq, or of another version"),
        (9, struct.pack("<Q", 9), "not an index of fairseq, or of another version"),
        (17, b"\0", "it has not the size that its beginning states"),
        (17, b"\1", "its sentences do not follow each other"),
        (18, struct.pack("<Q", 1 << 30), "it has not the size that its beginning states"),
        ("sizes", np.int32(1 << 30), "its sentences do not follow each other"),
        ("sizes", np.int32(-1), "its sentences do not follow each other"),
        ("places", np.int64(-8), "its sentences do not follow each other"),
        ("all places", np.int64(0), "its sentences do not follow each other"),
        ("last size", np.int32(1), "train.de-en.de.bin has "),
        ("end", b"", "it has not the size that its beginning states"),
    ],
)
def test_a_damaged_index_is_one_line(place: int | str, value: bytes | np.generic, problem: str, data: Path) -> None:
    index = data / f"{NAME}.idx"
    content = bytearray(index.read_bytes())
    count = (len(content) - HEADER.size) // 12
    given = value if isinstance(value, bytes) else value.tobytes()
    starts = {"sizes": 4, "places": 4 * count + 8, "all places": 4 * count, "last size": 4 * (count - 1)}
    start = place if isinstance(place, int) else HEADER.size + starts.get(place, 0)
    given *= count if place == "all places" else 1
    content[start : start + len(given)] = given
    index.write_bytes(content[:20] if place == "end" else content)
    line = f"{index}: damaged: {problem}"
    assert str(line_of(load_indexed_dataset, str(data / NAME))).startswith(line)


def test_the_text_itself_must_have_its_size(data: Path) -> None:
    (data / f"{NAME}.bin").write_bytes(b"")
    assert f"{NAME}.idx: damaged: {NAME}.bin has 0 bytes, not " in str(line_of(load_indexed_dataset, str(data / NAME)))


@pytest.mark.parametrize("name", [f"{NAME}.idx", "dict.en.txt"])
def test_a_training_takes_only_what_was_binarised(name: str, data: Path, tmp_path: Path) -> None:
    sums.add_sums(data, {path.name: path for path in data.iterdir()})
    lines = (data / name).read_bytes()
    (data / name).write_bytes(lines[:-1] + bytes([lines[-1] ^ 1]))
    line = str(line_of(toy.train_toy, data, tmp_path / "run", "--max-update", "1"))
    assert line.startswith(f"{data / name}: damaged or changed since it was prepared, says {data}/{sums.FILE}, ")
