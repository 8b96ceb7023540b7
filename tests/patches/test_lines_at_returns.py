"""fairseq-interactive reads the lines of a text: they end at the line feed alone."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq_cli import interactive

from fairseq_plugins.errors import UserError


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
