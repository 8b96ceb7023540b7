"""One training a directory at a time; the system ends the claim of a process that is killed."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches import two_trainings_at_once
from fairseq_plugins.patches.two_trainings_at_once import claim
from tests import toy
from tests.processes import Command

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def _none_before_and_after() -> Iterator[None]:
    two_trainings_at_once.release()
    yield
    two_trainings_at_once.release()


def _claim(directory: Path, claimed: Any, wait: bool) -> None:
    two_trainings_at_once._held.clear()  # a copy of the parent's; the lock is the parent's alone
    assert claim(directory) is None
    claimed.set()
    if wait:
        multiprocessing.Event().wait()


def claimed_by_a_child(directory: Path) -> bool:
    """Whether another process could begin a training in ``directory`` now."""
    process = FORK.Process(target=_claim, args=(directory, FORK.Event(), False))
    process.start()
    process.join()
    return process.exitcode == 0


def test_the_second_is_refused_until_the_first_is_killed(toy_data: Path, tmp_path: Path) -> None:
    claimed = FORK.Event()
    other = FORK.Process(target=_claim, args=(tmp_path, claimed, True), daemon=True)
    other.start()
    assert claimed.wait(60)
    try:
        with pytest.raises(UserError, match=r"another training is writing there; wait for it to end, or use another"):
            toy.train_toy(toy_data, tmp_path, "--max-update", "1")
        assert not (tmp_path / "checkpoint_last.pt").exists()
        toy.train_toy(toy_data, tmp_path, "--max-update", "1", "--no-save")
    finally:
        other.kill()
        other.join()
    assert toy.train_toy(toy_data, tmp_path, "--max-update", "1").exists()


def test_a_training_gives_its_directory_up_at_its_end(toy_data: Path, tmp_path: Path) -> None:
    def main(cfg: Any) -> None:
        train.main(cfg)
        assert not claimed_by_a_child(tmp_path)

    distributed_utils.call_main(toy.parse_training(toy_data, tmp_path, "--max-update", "1"), main)
    assert claimed_by_a_child(tmp_path)


def test_a_process_may_train_again_and_elsewhere(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert [claim(tmp_path / name) for name in ("a", "a", "b", "a")] == [None] * 4
    assert not claimed_by_a_child(tmp_path / "a")
    assert claimed_by_a_child(tmp_path / "b")


def test_a_directory_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with caplog.at_level(logging.WARNING, logger=two_trainings_at_once.__name__):
        assert claim(tmp_path) is None
    assert f"{tmp_path} cannot be locked (No locks available)" in caplog.text


def test_a_lock_that_cannot_be_opened_ends_every_process(toy_data: Path, tmp_path: Path, fairseq_deep: Command) -> None:
    """The others wait for the first one, which alone locks: it tells them instead of ending."""
    (tmp_path / ".lock").mkdir()
    flags = ["--arch", "transformer", *toy.TINY_MODEL, *toy.RECIPE, "--max-update", "1", "--disable-validation"]
    two = ["--distributed-world-size", "2", "--save-dir", str(tmp_path)]
    ended = fairseq_deep("train", str(toy_data), *flags, *two)
    assert (ended.code, ended.error) == (2, f"error: {tmp_path}/.lock: Is a directory")
    assert claim(tmp_path) == f"{tmp_path}/.lock: Is a directory"
