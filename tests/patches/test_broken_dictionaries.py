"""A dictionary that cannot be read: file, line and what is wrong, in one line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq.data import Dictionary

from fairseq_plugins.errors import UserError


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a 3\nb\t3\n", "line 2: 'b\t3' is not a word and its count, separated by a space, not a tab"),
        (b"a 3\nb\n", "line 2: 'b' is not a word and its count"),
        (b"a 3\n\nb 3\n", "line 2: '' is not a word and its count"),
        (b"a 3\nb 1.5\n", "line 2: 'b 1.5' is not a word and its count"),
        (
            b"a 3\nb 2\na 1\n",
            "line 3: the word 'a' is in line 1 already; remove it, or end the line in #fairseq:overwrite",
        ),
        (
            b"a 3\n<pad> 3\n",
            "line 2: the word '<pad>' is one that fairseq adds itself; remove it, or end "
            "the line in #fairseq:overwrite",
        ),
        (b"a 3\n\xff 3\n", "line 2: not UTF-8 (byte 0xff)"),
    ],
)
def test_file_and_line_are_named(content: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        Dictionary.load(str(path))
    assert caught.value.problems == (f"{path}: {fault}",)


def test_stock_names_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dictionary, "add_from_file", inspect.unwrap(Dictionary.add_from_file))
    path = tmp_path / "dict.de.txt"
    path.write_text("a 3\nb\t3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="Incorrect dictionary format") as caught:
        Dictionary.load(str(path))
    assert not isinstance(caught.value, UserError)


def test_what_fairseq_reads_is_read(tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_text("a 3\nb c 2\n<pad> 1 #fairseq:overwrite\n", encoding="utf-8")
    assert Dictionary.load(str(path)).symbols[4:] == ["a", "b c", "<pad>"]


def test_a_missing_file_is_named_as_ever(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Dictionary.load(str(tmp_path / "dict.de.txt"))
