"""Checkpoints that a kill truncated are removed, and the last one is restored from the newest whole one."""

from __future__ import annotations

from pathlib import Path

import torch

from fairseq_plugins.checkpoints.damaged import is_damaged, restore_last_checkpoint


def save(path: Path, updates: int) -> Path:
    state = {"model": {"w": torch.full((500,), float(updates))}, "optimizer_history": [{"num_updates": updates}]}
    with open(path, "wb") as stream:
        torch.save(state, stream)
    return path


def test_the_beginning_of_a_checkpoint_is_damaged(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoint_last.pt", 1)
    assert not is_damaged(path)
    content = path.read_bytes()
    for size in (0, 1, 3, 4, 100, -1):
        path.write_bytes(content[:size])
        assert is_damaged(path), size


def test_the_last_is_restored_from_the_newest_by_updates_not_by_name(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint_1_900.pt", 900)
    newest = save(tmp_path / "checkpoint_best.pt", 1000)
    save(tmp_path / "checkpoint9.pt", 800)
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(newest.read_bytes()[:700])
    (tmp_path / "checkpoint_1_1000.pt.tmp").write_bytes(b"PK")
    messages = restore_last_checkpoint(tmp_path)
    assert last.read_bytes() == newest.read_bytes()
    assert messages == [f"{last}: truncated, removed", f"{last}: restored from checkpoint_best.pt"]
    names = ["checkpoint9.pt", "checkpoint_1_900.pt", "checkpoint_best.pt", "checkpoint_last.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_kill_before_the_first_copy(tmp_path: Path) -> None:
    first = save(tmp_path / "checkpoint_1_10.pt", 10)
    restore_last_checkpoint(tmp_path)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == first.read_bytes()


def test_whole_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint_1_20.pt", 20)
    save(tmp_path / "checkpoint_last.pt", 10)  # killed between the first name and its copy
    # The format of torch before 1.6, and a file that is no checkpoint.
    (tmp_path / "checkpoint_old.pt").write_bytes(b"\x80\x02\x8a\nl\xfc")
    (tmp_path / "notes.pt").write_bytes(b"")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert restore_last_checkpoint(tmp_path) == []
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert restore_last_checkpoint(tmp_path / "absent") == []
