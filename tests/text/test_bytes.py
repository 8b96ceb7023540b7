"""Bytes as tokens: nothing is lost, and fairseq counts one token for each byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.tokenizer import tokenize_line
from hypothesis import example, given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.text.bytes import cut, write_tokens


def tokens(path: Path) -> list[str]:
    """The tokens of a text as fairseq takes them, its end of line as a line feed."""
    found: list[str] = []
    for line in path.read_text(encoding="ascii").split("\n")[:-1]:
        found += [*tokenize_line(line), "\n"]
    return found


@given(st.binary(min_size=1, max_size=300))
@example(bytes(range(256)))
@example(b"\n\n")
@example(b"a\r\nb")
def test_the_bytes_come_back(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.mktemp("bytes")
    (directory / "raw").write_bytes(content)
    write_tokens(directory / "raw", directory / "text")
    found = tokens(directory / "text")
    back = bytes(ord("\n") if token == "\n" else int(token) for token in found)
    # One token for each byte, and one more where the last line has no end.
    assert back == (content if content.endswith(b"\n") else content + b"\n")


def test_no_token_is_a_special_one_of_fairseq() -> None:
    dictionary = Dictionary()
    special = {dictionary.symbols[number] for number in range(dictionary.nspecial)}
    assert special.isdisjoint(str(byte) for byte in range(256))


def test_the_parts_of_enwik8(tmp_path: Path) -> None:
    """A hole of 100,000,000 bytes takes no disk; the papers' parts have 90, 5 and 5 million."""
    with open(tmp_path / "enwik8", "wb") as stream:
        stream.truncate(100_000_000)
        stream.seek(89_999_999)
        stream.write(b"tv")
        stream.seek(94_999_999)
        stream.write(b"vT")
    cut(tmp_path / "enwik8", tmp_path / "raw")
    sizes = {part.name: part.stat().st_size for part in (tmp_path / "raw").iterdir()}
    assert sizes == {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}
    ends = []
    for name in ("train", "valid", "test"):
        with open(tmp_path / "raw" / name, "rb") as stream:
            first = stream.read(1)
            stream.seek(-1, 2)
            ends.append(first + stream.read(1))
    assert ends == [b"\0t", b"vv", b"T\0"]


@given(st.binary(min_size=20, max_size=300))
def test_no_byte_is_lost_in_cutting(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.mktemp("cut")
    (directory / "raw").write_bytes(content)
    cut(directory / "raw", directory / "parts")
    assert b"".join((directory / "parts" / name).read_bytes() for name in ("train", "valid", "test")) == content


def test_too_little_is_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(b"0123456789")
    with pytest.raises(UserError, match="raw: 10 bytes, too few to cut into three parts"):
        cut(tmp_path / "raw", tmp_path / "parts")
    (tmp_path / "raw").write_bytes(b"")
    with pytest.raises(UserError, match="raw: empty"):
        write_tokens(tmp_path / "raw", tmp_path / "text")
