"""Lines are strict UTF-8, end at the line feed alone, and files appear when they are whole."""

import errno
import gzip
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairseq_plugins.lines import in_step, read_lines, write_lines
from fairseq_plugins.tools.text.parallel import split
from tests.refusals import refused
from tests.texts import written


def problem(*paths: Path) -> str:
    return refused(lambda: list(read_lines(*paths)))


@example(["a\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b", ""])
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    lines[0] = lines[0].lstrip("\ufeff")
    assert write_lines(path, lines) == len(lines)
    assert path.read_bytes().count(b"\n") == len(lines)
    assert list(read_lines(path)) == lines
    packed = path.with_suffix(".gz")
    write_lines(packed, lines)
    assert list(read_lines(packed)) == lines


def test_files_are_read_behind_one_another_without_byte_order_marks(tmp_path: Path) -> None:
    first = written(tmp_path / "one", b"\xef\xbb\xbfEins\nZwei")
    second = written(tmp_path / "two.gz", gzip.compress("Drei\n\ufeffVier\n".encode()))
    assert list(read_lines(first, second)) == ["Eins", "Zwei", "Drei", "\ufeffVier"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, content, cause in (
        ("latin-1", "gut\nschön\n".encode("latin-1"), "line 2: not UTF-8 (byte 0xf6)"),
        ("surrogates", b"\xed\xa0\x80\n", "line 1: not UTF-8 (byte 0xed)"),
        ("empty", b"", "empty"),
        ("empty.gz", gzip.compress(b"", mtime=0), "empty"),
        ("no.gz", b"plain text", "not a whole gzip file"),
        ("half.gz", gzip.compress(b"a sentence\n" * 40, mtime=0)[:-4], "not a whole gzip file"),
    ):
        path = written(tmp_path / name, content)
        assert problem(path) == f"{path}: {cause}"
    assert problem(tmp_path / "absent") == f"{tmp_path / 'absent'}: no such file"
    assert problem(tmp_path) == f"{tmp_path}: is a directory"


def test_files_of_unequal_length_are_told_apart_by_their_counts(tmp_path: Path) -> None:
    two, four = written(tmp_path / "a.de", b"1\n2\n"), written(tmp_path / "a.en", b"1\n2\n3\n4\n")
    for files, counts in (((two, four), ("2", "4")), ((four, two), ("4", "2"))):
        found = ", ".join(f"{file} has {count} lines" for file, count in zip(files, counts, strict=True))
        line = f"{files[0]}: not parallel: {found}; line k must translate line k"
        assert refused(lambda files=files: list(in_step(files))) == line


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(tmp_path / "text", b"a\nb\n")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    line = f"{tmp_path / 'one'} {tmp_path / 'two'}: cannot be written: no space left on device"
    assert refused(split, text, tmp_path / "one", tmp_path / "two", every=2) == line
    assert list(tmp_path.iterdir()) == [text]
    assert "cannot be written: no such file" in refused(write_lines, tmp_path / "absent" / "text", ["a"])
