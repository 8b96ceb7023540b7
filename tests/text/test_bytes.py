"""Bytes as tokens: nothing is lost, and fairseq counts one token for each byte."""

from pathlib import Path

import pytest
from fairseq.tokenizer import tokenize_line
from hypothesis import example, given
from hypothesis import strategies as st

from fairseq_plugins.tools.text.bytes import cut, write_tokens


def tokens(path: Path) -> list[str]:
    """The tokens of a text as fairseq takes them, its end of line as a line feed."""
    lines = path.read_text(encoding="ascii").split("\n")[:-1]
    return [token for line in lines for token in [*tokenize_line(line), "\n"]]


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


@given(st.binary(min_size=20, max_size=300))
@example(bytes(range(200)))
def test_no_byte_is_lost_in_cutting(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.mktemp("cut")
    (directory / "raw").write_bytes(content)
    cut(directory / "raw", directory / "parts")
    train, valid, test = ((directory / "parts" / name).read_bytes() for name in ("train", "valid", "test"))
    assert train + valid + test == content
    assert (len(train), len(valid)) == (len(content) * 90 // 100, len(content) * 5 // 100)
