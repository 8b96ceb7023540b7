"""Files that are never seen half-written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fairseq_plugins.files import write_whole


def test_bytes_are_those_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a file"
    write_whole(path, "Füße\n\r\n")
    assert path.read_bytes() == "Füße\n\r\n".encode()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")

    def fail(*names: object) -> None:
        raise failure

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(failure)):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
