"""The file of a run: nothing that was written whole is lost, and nothing else is read."""

import errno
import json
import logging
import math
import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.recorder import Entry, read
from fairseq_plugins.tools.observe.recorder.entries import EntryFile, parse

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


def test_a_file_cut_at_any_byte_reads_as_the_lines_before_and_goes_on(tmp_path: Path) -> None:
    file = EntryFile(tmp_path / "recorder.jsonl")
    written = [entry(update) for update in (1, 2, 3)]
    for item in written:
        file(item)
    whole = file.path.read_bytes()
    ends = [position for position, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole)):
        file.path.write_bytes(whole[:length])
        before = written[: sum(end <= length for end in ends)]
        assert read(file.path) == before
        file.resume(3)
        file(entry(4))
        assert read(file.path) == [*before, entry(4)]


DAMAGED = (
    b"\x00\xff\xfe",
    b"null",
    b'{"update": 1}',
    b'{"update": 1, "applied": true, "values": {"loss": null}}',
    b'{"update": 1, "applied": true, "values": ' + b"[" * 100_000,
)


def test_a_damaged_line_is_left_out_and_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "recorder.jsonl"
    for line in DAMAGED:
        path.write_bytes(entry(2).to_json().encode() + b"\n" + line + b"\n" + entry(4).to_json().encode() + b"\n")
        EntryFile(path).resume(4)
        assert read(path) == [entry(2), entry(4)], line


def test_a_full_disk_costs_one_entry_and_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = EntryFile(tmp_path / "recorder.jsonl")
    file(entry(1))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch.object(os, "fsync", side_effect=full), caplog.at_level(logging.WARNING):
        file(entry(2))
    file(entry(3))
    assert read(file.path) == [entry(1), entry(3)]
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == f"{file.path}: update 2 is not recorded: No space left on device"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/recorder.jsonl: the recorder cannot write there: "):
        EntryFile(tmp_path / "file" / "recorder.jsonl")
    (tmp_path / "recorder.jsonl").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        EntryFile(tmp_path / "recorder.jsonl")
    (tmp_path / "link.jsonl").symlink_to("made")
    with pytest.raises(UserError, match="cannot write there: a link"):
        EntryFile(tmp_path / "link.jsonl")
    assert not (tmp_path / "made").exists()
