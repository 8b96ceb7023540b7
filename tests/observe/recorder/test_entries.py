"""The file of a run: nothing that was written whole is lost, nothing else is read, and it does not grow for ever."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.observe.recorder import Entry, entries, read
from fairseq_plugins.observe.recorder.entries import EntryFile, parse

NUMBERS = st.floats(allow_nan=False)


def entry(update: int, **values: float) -> Entry:
    return Entry(update, True, values or {"loss": 1.0 / update})


@given(st.integers(1, 10**9), st.booleans(), st.dictionaries(st.text(), NUMBERS, max_size=5))
def test_a_line_is_strict_json_and_reads_back(update: int, applied: bool, values: dict[str, float]) -> None:
    written = Entry(update, applied, values)
    line = written.to_json()
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert parse(line) == written


def test_what_is_not_a_number_reads_back() -> None:
    values = parse(entry(1, a=math.nan, b=math.inf, c=-math.inf).to_json()).values
    assert math.isnan(values["a"])
    assert (values["b"], values["c"]) == (math.inf, -math.inf)


def test_a_file_cut_at_any_byte_reads_as_the_lines_before(tmp_path: Path) -> None:
    file = EntryFile(tmp_path / "recorder.jsonl", keep=10)
    written = [entry(update) for update in (1, 2, 3)]
    for one in written:
        file(one)
    whole = file.path.read_bytes()
    ends = [position for position, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole)):
        file.path.write_bytes(whole[:length])
        assert read(file.path) == written[: sum(end <= length for end in ends)]


def test_the_last_entries_stay(tmp_path: Path) -> None:
    file = EntryFile(tmp_path / "recorder.jsonl", keep=8)
    for update in range(1, 101):
        file(entry(update))
        kept = [one.update for one in read(file.path)]
        assert kept == list(range(update - len(kept) + 1, update + 1))
        assert min(update, 8) <= len(kept) <= 10
    assert [path.name for path in tmp_path.iterdir()] == ["recorder.jsonl"]


@pytest.mark.parametrize(
    "line",
    [
        b"\x00\xff\xfe",
        b"[1, 2]",
        b"null",
        b'{"update": 1}',
        b'{"update": Infinity, "applied": true, "values": {}}',
        b'{"update": "x", "applied": true, "values": {}}',
        b'{"update": 1, "applied": true, "values": [1]}',
        b'{"update": 1, "applied": true, "values": {"loss": null}}',
    ],
)
def test_a_damaged_line_is_left_out_when_read_and_when_resumed(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "recorder.jsonl"
    path.write_bytes(entry(2).to_json().encode() + b"\n" + line + b"\n" + entry(4).to_json().encode() + b"\n")
    assert read(path) == [entry(2), entry(4)]
    EntryFile(path, keep=10).resume(4)
    assert path.read_text() == f"{entry(2).to_json()}\n{entry(4).to_json()}\n"


def test_a_disk_that_is_full_at_the_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    file = EntryFile(tmp_path / "recorder.jsonl", keep=10)
    monkeypatch.setattr(entries, "whole_file", full)
    with pytest.raises(UserError, match="the recorder cannot write there: No space left on device$"):
        file.resume(0)


def test_resuming_drops_what_comes_after_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "recorder.jsonl"
    path.write_text("".join(entry(update).to_json() + "\n" for update in (2, 4, 6)) + '{"update": 8, "val')
    file = EntryFile(path, keep=10)
    file.resume(4)
    file(entry(6, loss=7.0))
    assert read(path) == [entry(2), entry(4), entry(6, loss=7.0)]


def test_a_full_disk_costs_one_entry_and_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = EntryFile(tmp_path / "recorder.jsonl", keep=10)
    file(entry(1))

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(os, "fsync", full)
        file(entry(2))
    file(entry(3))
    assert read(file.path) == [entry(1), entry(3)]
    assert [record.getMessage() for record in caplog.records] == [
        f"{file.path}: update 2 is not recorded: No space left on device"
    ]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/recorder.jsonl: the recorder cannot write there: "):
        EntryFile(tmp_path / "file" / "recorder.jsonl", keep=1)
    (tmp_path / "recorder.jsonl").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        EntryFile(tmp_path / "recorder.jsonl", keep=1)


def test_reading_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone.jsonl: No such file"):
        read(tmp_path / "gone.jsonl")
