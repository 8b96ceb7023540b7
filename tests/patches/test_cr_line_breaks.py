"""fairseq-interactive reads the lines of a text: they end at the line feed alone."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq_cli import interactive

from fairseq_plugins.errors import UserError
from tests.processes import Command


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


def test_an_empty_line_has_an_empty_translation(
    toy_data: Path, toy_checkpoint: Path, tmp_path: Path, fairseq_deep: Command
) -> None:
    (tmp_path / "text").write_text("eins zwei\n\n \ndrei\n", encoding="utf-8")
    flags = "--cpu --beam 2 --nbest 2 --max-len-b 4 --buffer-size 4 --batch-size 4 --print-alignment hard".split()
    words = ("interactive", str(toy_data), "--path", str(toy_checkpoint), "--input", str(tmp_path / "text"), *flags)
    said = [line.split("\t") for line in fairseq_deep(*words).output.splitlines()]
    texts = {name: [line[2] for line in said if line[0] == name] for name in ("D-0", "D-1", "D-2", "D-3")}
    assert [len(found) for found in texts.values()] == [2, 1, 1, 2]
    assert texts["D-1"] == texts["D-2"] == [""]
    assert ["H-1", "0.0", ""] in said
    assert texts["D-0"][0] != ""
