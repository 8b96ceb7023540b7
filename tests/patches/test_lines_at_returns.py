"""fairseq-interactive reads the lines of a text: they end at the line feed alone."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq_cli import interactive
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError

CHARACTERS = st.sampled_from("ab \t\r\x0b\x1c\x85\u2028\ufeff\0é漢\u0301👩")


def test_stock_ends_a_line_at_a_carriage_return(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\rtwo\nthree\n")
    stock = inspect.unwrap(interactive.buffered_read)
    assert list(stock(str(path), 5)) == [["one", "two", "three"]]
    assert list(interactive.buffered_read(str(path), 5)) == [["one\rtwo", "three"]]
    # What precedes a fault is read.
    path.write_bytes(b"one\ntwo\nthree\nf\xfcnf\nsix\n")
    read = interactive.buffered_read(str(path), 2)
    assert [next(read), next(read)] == [["one", "two"], ["three"]]
    with pytest.raises(UserError, match="text: line 4: not UTF-8"):
        next(read)


@given(st.lists(st.text(CHARACTERS, max_size=8), max_size=12), st.integers(min_value=1, max_value=5))
def test_interactive_reads_the_lines_of_a_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    buffers = list(interactive.buffered_read(str(path), size))
    first = [line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(lines)]
    assert [line for buffer in buffers for line in buffer] == [line.strip() for line in first]
    assert all(len(buffer) == size for buffer in buffers[:-1])
