"""Files that are never seen half-written."""

import errno
import os
from pathlib import Path
from threading import Thread

import pytest

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import locked, no_link, require_no_input, whole_directory, write_whole
from fairseq_plugins.tools.pipeline.workspace import Workspace
from tests.refusals import refused


@pytest.mark.parametrize(
    ("failure", "raised", "message"),
    [
        (OSError(errno.ENOSPC, "No space"), UserError, "/file: cannot be written: no space$"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failure, raised, message):
    path = tmp_path / "file"
    write_whole(path, "Füße\n\r\n")

    def fail(*names: object) -> None:
        raise failure

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(raised, match=message):
        write_whole(path, "new")
    assert path.read_bytes() == "Füße\n\r\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_is_overwritten_after_a_process_was_killed_meanwhile(tmp_path: Path) -> None:
    for name in ("out", "out.before", "out.partial"):
        (tmp_path / name).mkdir()
        write_whole(tmp_path / name / "file", "old")
    with whole_directory(tmp_path / "out", overwrite=True) as partial:
        write_whole(partial / "file", "new")
    assert (tmp_path / "out" / "file").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.before"}


def test_a_result_is_never_written_over_what_it_is_made_of(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.touch()
    (tmp_path / "hard").hardlink_to(text)
    (tmp_path / "soft").symlink_to("text")
    (tmp_path / "here").symlink_to(tmp_path)
    for name in ("text", "hard", "soft", "here/text"):
        with pytest.raises(UserError, match=f"/{name}: the output is also an input"):
            require_no_input(tmp_path / name, [tmp_path / "absent", text])
    with pytest.raises(UserError, match="the output contains the input"):
        require_no_input(tmp_path / "here", [text])
    require_no_input(tmp_path / "text.json", [text, tmp_path / "absent"])


def test_a_device_stays_a_device_and_a_link_a_link(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through it")
    assert os.read(reader, 100) == b"through it"
    assert pipe.is_fifo()
    os.close(reader)
    link, text = tmp_path / "link", tmp_path / "text"
    link.symlink_to(text)
    write_whole(link, "behind it", follow=True)
    assert link.is_symlink()
    assert text.read_text() == "behind it"
    with open(text, "a") as log:
        stream = Path(f"/proc/self/fd/{log.fileno()}")
        assert "which would be replaced" in refused(write_whole, stream, "lost")


def test_nothing_is_written_through_a_link_that_the_user_has_not_named(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    for name in ("file.partial", "other", "lock"):
        (tmp_path / name).symlink_to("secret" if name != "lock" else "made")
    write_whole(tmp_path / "file", "new")
    write_whole(tmp_path / "other", "new")
    assert [(tmp_path / name).read_text() for name in ("file", "other", "secret")] == ["new", "new", "mine"]
    assert not (tmp_path / "other").is_symlink()
    with pytest.raises(UserError, match="cannot be written"), locked(tmp_path / "lock"):
        pass
    with pytest.raises(FileExistsError, match="a link, through"), open(tmp_path / "lock", "ab", opener=no_link):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"file", "lock", "other", "secret"}


def test_a_lock_is_held_by_one_and_is_given_back(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "file"):
        with locked(path):
            with pytest.raises(UserError, match="^busy$"), locked(path, "busy"):
                pass
            waiting = Thread(target=lambda place=path: locked(place).__enter__())
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
        waiting.join()
    with pytest.raises(UserError, match="absent: cannot be written"), locked(tmp_path / "absent" / "file"):
        pass


def test_a_name_appears_when_the_disk_has_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut would leave the name, and an empty file or the beginning of one."""
    events: list[str] = []
    sync, rename = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).relative_to(tmp_path).as_posix())
        sync(descriptor)

    def renamed(before: Path, after: Path) -> None:
        events.append(f"-> {after.name}")
        rename(before, after)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_whole(tmp_path / "file", "x")
    with whole_directory(tmp_path / "out") as partial:
        (partial / "below").mkdir()
        (partial / "below" / "one").write_text("1")
    Workspace(tmp_path).make(tmp_path / "codes", Path.touch)
    assert events == ["file.partial", "-> file", "out.partial/below/one", "-> out", "codes.partial", "-> codes"]
