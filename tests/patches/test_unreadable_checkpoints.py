"""A file that cannot be used ends in one clear line, and nothing in it is run."""

from __future__ import annotations

import os
import re
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


def truncated(path: Path, good: Path) -> None:
    path.write_bytes(good.read_bytes()[:-2000])


def cut_at_the_start(path: Path, good: Path) -> None:
    path.write_bytes(good.read_bytes()[:5000])


def empty(path: Path, good: Path) -> None:
    path.write_bytes(b"")


def text(path: Path, good: Path) -> None:
    path.write_text("[model]\nlayers = 6\n" * 50)


def text_that_pops_an_empty_stack(path: Path, good: Path) -> None:
    path.write_text("the quick\n")


def text_that_looks_up_a_memo(path: Path, good: Path) -> None:
    path.write_text("hello\n")


def text_that_is_not_utf8(path: Path, good: Path) -> None:
    path.write_bytes(b"X\x03\x00\x00\x00\xff\xff\xff")


def directory(path: Path, good: Path) -> None:
    path.mkdir()


def a_list(path: Path, good: Path) -> None:
    torch.save([1, 2], path)


def bare_weights(path: Path, good: Path) -> None:
    torch.save({"encoder.weight": torch.ones(2)}, path)


def callable_inside(path: Path, good: Path) -> None:
    state = torch.load(good, weights_only=True)
    torch.save({**state, "extra_state": Mark(path.with_name("ran"))}, path)


def missing(path: Path, good: Path) -> None:
    pass


BAD = {
    truncated: "truncated or not a checkpoint",
    cut_at_the_start: "truncated or not a checkpoint",
    empty: "is empty",
    text: "truncated or not a checkpoint",
    text_that_pops_an_empty_stack: "truncated or not a checkpoint",
    text_that_looks_up_a_memo: "truncated or not a checkpoint",
    text_that_is_not_utf8: "truncated or not a checkpoint",
    directory: "Is a directory",
    a_list: "is not a fairseq checkpoint",
    bare_weights: "is not a fairseq checkpoint",
    callable_inside: "posix.mkdir|nt.mkdir",
    missing: "no such checkpoint",
}


@pytest.mark.parametrize(("make", "message"), BAD.items(), ids=[make.__name__ for make in BAD])
def test_one_line_for_every_command(make: Any, message: str, toy_checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.pt"
    make(path, toy_checkpoint)
    with pytest.raises((UserError, OSError)) as caught:
        checkpoint_utils.load_model_ensemble([str(path)])
    line = str(users_mistake(caught.value))
    assert re.search(message, line)
    assert "\n" not in line
    assert str(path) in line
    assert not path.with_name("ran").exists()


def test_the_callable_would_run_without_restriction(toy_checkpoint: Path, tmp_path: Path) -> None:
    callable_inside(tmp_path / "bad.pt", toy_checkpoint)
    torch.load(tmp_path / "bad.pt", weights_only=False)
    assert (tmp_path / "ran").is_dir()


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_named_file_that_is_missing_stops_the_training(flag: str, toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{flag} .*absent.pt: no such file"):
        toy.train_toy(toy_data, tmp_path / "run", "--max-update", "1", flag, str(tmp_path / "absent.pt"))
    assert list((tmp_path / "run").glob("*.pt")) == []


def test_a_first_launch_needs_no_file(toy_data: Path, tmp_path: Path) -> None:
    assert toy.train_toy(toy_data, tmp_path / "run", "--max-update", "1").is_file()


def test_errors_in_a_good_checkpoint_stay_as_they_are(toy_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        checkpoint_utils.load_checkpoint_to_cpu(str(toy_checkpoint), arg_overrides=3)
