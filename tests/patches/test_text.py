"""Text ends its lines at line feeds, data are as they were binarised, and each sentence is in a batch."""

import hashlib
import inspect
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from fairseq import options
from fairseq.data import data_utils
from fairseq.data.data_utils import load_indexed_dataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import interactive, validate
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins import sums
from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.binarised_data import HEADER
from tests import toy
from tests.patches.conftest import watched
from tests.processes import Command
from tests.refusals import line_of, refused


def test_a_carriage_return_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\rtwo\nthree\n")
    assert list(interactive.buffered_read(str(path), 5)) == [["one\rtwo", "three"]]
    # Lines before a fault are read.
    path.write_bytes(b"one\ntwo\nthree\nf\xfcnf\nsix\n")
    read = interactive.buffered_read(str(path), 2)
    assert [next(read), next(read)] == [["one", "two"], ["three"]]
    with pytest.raises(UserError, match="text: line 4: not UTF-8"):
        next(read)


def test_an_empty_line_stays_empty(toy_data: Path, toy_checkpoint: Path, tmp_path: Path, fairseq_deep: Command) -> None:
    (tmp_path / "text").write_text("eins zwei\n\n \ndrei\n", encoding="utf-8")
    flags = "--cpu --beam 2 --nbest 2 --max-len-b 4 --buffer-size 4 --batch-size 4 --print-alignment hard".split()
    words = ("interactive", str(toy_data), "--path", str(toy_checkpoint), "--input", str(tmp_path / "text"), *flags)
    said = [line.split("\t") for line in fairseq_deep(*words).output.splitlines()]
    texts = {name: [line[2] for line in said if line[0] == name] for name in ("D-0", "D-1", "D-2", "D-3")}
    assert [len(found) for found in texts.values()] == [2, 1, 1, 2]
    assert texts["D-1"] == texts["D-2"] == [""]
    assert ["H-1", "0.0", ""] in said
    assert texts["D-0"][0] != ""


NAME = "train.de-en.de"


@pytest.fixture
def data(toy_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_data, tmp_path / "data"))


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


@pytest.mark.parametrize("name", [f"{NAME}.idx", "dict.en.txt"])
def test_a_training_takes_only_what_was_binarised(name: str, data: Path, tmp_path: Path) -> None:
    sums.add_sums(data, {path.name: path for path in data.iterdir()})
    lines = (data / name).read_bytes()
    (data / name).write_bytes(lines[:-1] + bytes([lines[-1] ^ 1]))
    line = str(line_of(toy.train_toy, data, tmp_path / "run", "--max-update", "1"))
    assert line.startswith(f"{data / name}: damaged or changed since it was prepared, says {data}/{sums.FILE}, ")


def test_a_list_of_checksums_that_cannot_be_read_is_no_list_without_checksums(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("one 1\n")
    not_utf8, other = b"0  x\n1  f\xfcnf\n", "line 1: not a checksum and the name of a file"
    for content, problem in ((b"", "empty"), (not_utf8, "line 2: not UTF-8 (byte 0xfc)"), (bytes(9), other)):
        (tmp_path / sums.FILE).write_bytes(content)
        line = f"{tmp_path}/{sums.FILE}: {problem}"
        assert [refused(sums.require_sums, tmp_path, "*"), refused(sums.add_sums, tmp_path, {})] == [line, line]
    known = {name: hashlib.new(name, b"one 1\n").hexdigest() for name in ("sha256", "md5")}
    (tmp_path / sums.FILE).write_text(f"# mine\n{known['sha256'].upper()} *dict.txt\n")
    sums.require_sums(tmp_path, "dict.*")
    assert [sums.checksum(tmp_path / "dict.txt", digits=digits) for digits in (64, 32)] == list(known.values())


def batches(lengths: list[int], multiple: int, *limits: int, stock: bool = False) -> list[list[int]]:
    sizes = np.array(lengths, dtype=np.int64)
    make = inspect.unwrap(data_utils.batch_by_size) if stock else data_utils.batch_by_size
    return [list(batch) for batch in make(np.arange(len(sizes)), lambda i: sizes[i], sizes, *limits, multiple)]


def test_stock_drops_sentences() -> None:
    assert sum(map(len, batches([7] * 60, 8, 12000, -1, stock=True))) == 56
    assert batches([7] * 5, 8, 12000, -1, stock=True) == []
    assert batches([], 8, 100, -1) == []


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=70).map(sorted),
    multiple=st.sampled_from([1, 2, 8]),
    max_tokens=st.integers(40, 400),
    max_sentences=st.integers(1, 30),
)
def test_every_sentence_once_and_other_batches_untouched(lengths, multiple, max_tokens, max_sentences):
    made = batches(lengths, multiple, max_tokens, max_sentences)
    assert [i for batch in made for i in batch] == list(range(len(lengths)))
    assert all(len(batch) <= max_sentences for batch in made)
    assert all(max(lengths[i] for i in batch) * len(batch) <= max_tokens for batch in made)
    stock = batches(lengths, multiple, max_tokens, max_sentences, stock=True)
    assert made[: len(stock)] == stock


def test_training_sees_every_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy.binarise(tmp_path, {"train": 5, "valid": 5})
    seen = watched(monkeypatch, "train_step")
    toy.train_toy(data, tmp_path / "run", "--max-epoch", "1", "--no-save", "--max-tokens", "4000")
    assert sorted(sum(seen, [])) == list(range(5))


def test_generation_and_validation_take_every_sentence(toy_data, toy_checkpoint, tmp_path, monkeypatch):
    one, other = (
        toy.translate_toy(toy_data, toy_checkpoint, tmp_path, "--num-shards", "2", "--shard-id", shard)
        for shard in "01"
    )
    assert sorted([*one, *other]) == list(range(60))
    assert min(len(one), len(other)) > 0
    flags = ("--num-shards", "2", "--shard-id", "2")
    line = "--shard-id must be from 0 to 1 with --num-shards 2, not 2"
    assert refused(toy.translate_toy, toy_data, toy_checkpoint, tmp_path, *flags) == line
    few = toy.binarise(tmp_path, {"train": 120, "test": 5})
    assert not toy.translate_toy(few, toy_checkpoint, tmp_path / "no", "--num-shards", "2", "--shard-id", "1")
    assert sorted(toy.translate_toy(few, toy_checkpoint, tmp_path / "few")) == list(range(5))
    words = f"{toy_data} --path {toy_checkpoint} --valid-subset test --cpu --task translation --max-tokens 400"
    args = options.parse_args_and_arch(options.get_validation_parser(), input_args=words.split())
    seen = watched(monkeypatch, "valid_step")
    validate.main(convert_namespace_to_omegaconf(args))
    assert sorted(sum(seen, [])) == list(range(60))
