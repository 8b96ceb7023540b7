"""A file that cannot be used ends in one clear line, and nothing in it is run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_plugins.errors import UserError
from fairseq_plugins.process import users_mistake
from tests import toy


class Mark:
    """Unpickled without restriction, it makes a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def callable_inside(path: Path, good: bytes) -> None:
    torch.save({"model": {}, "extra_state": Mark(path.with_name("ran"))}, path)


BAD: dict[str, tuple[Callable[[Path, bytes], object], str]] = {
    "truncated": (lambda path, good: path.write_bytes(good[:-2000]), "truncated or not a checkpoint"),
    "cut at the start": (lambda path, good: path.write_bytes(good[:5000]), "truncated or not a checkpoint"),
    "empty": (lambda path, good: path.write_bytes(b""), "is empty"),
    "text": (lambda path, good: path.write_text("[model]\nlayers = 6\n" * 50), "truncated or not a checkpoint"),
    "pops an empty stack": (lambda path, good: path.write_text("the quick\n"), "truncated or not a checkpoint"),
    "looks up a memo": (lambda path, good: path.write_text("hello\n"), "truncated or not a checkpoint"),
    "not UTF-8": (lambda path, good: path.write_bytes(b"X\x03\0\0\0\xff\xff"), "truncated or not a checkpoint"),
    "directory": (lambda path, good: path.mkdir(), "Is a directory"),
    "list": (lambda path, good: torch.save([1, 2], path), "is not a fairseq checkpoint"),
    "tensor": (lambda path, good: torch.save(torch.ones(2), path), "is not a fairseq checkpoint"),
    "weights": (lambda path, good: torch.save({"weight": torch.ones(2)}, path), "is not a fairseq checkpoint"),
    "callable": (callable_inside, "posix.mkdir|nt.mkdir"),
    "missing": (lambda path, good: None, "no such checkpoint"),
}
"""By name, what makes the file, and words of the line."""


def test_one_line_for_every_command(toy_checkpoint: Path, tmp_path: Path) -> None:
    for name, (make, message) in BAD.items():
        path = tmp_path / name.replace(" ", "_") / "bad.pt"
        path.parent.mkdir()
        make(path, toy_checkpoint.read_bytes())
        with pytest.raises((UserError, OSError)) as caught:
            checkpoint_utils.load_model_ensemble([str(path)])
        line = str(users_mistake(caught.value))
        assert re.search(message, line), name
        assert "\n" not in line
        assert str(path) in line
    assert not list(tmp_path.rglob("ran"))
    # Without restriction it would run.
    torch.load(tmp_path / "callable/bad.pt", weights_only=False)
    assert list(tmp_path.rglob("ran"))


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_named_file_that_is_missing_stops_the_training(flag: str, toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{flag} .*absent.pt: no such file"):
        toy.train_toy(toy_data, tmp_path / "run", "--max-update", "1", flag, str(tmp_path / "absent.pt"))
    assert list((tmp_path / "run").glob("*.pt")) == []


def test_errors_in_a_good_checkpoint_stay_as_they_are(toy_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        checkpoint_utils.load_checkpoint_to_cpu(str(toy_checkpoint), arg_overrides=3)
