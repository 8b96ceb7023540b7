"""`fairseq-deep download`: mirrors, continued downloads, checksums, the user's own copies."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairseq_plugins.cli.main import main
from fairseq_plugins.pipeline.download import chosen
from tests.scripts.server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "a directory with spaces"
    directory.mkdir()
    (directory / "checksums").touch()
    for name, value in {
        "CACHE": str(directory / "cache"),
        "CHECKSUMS": str(directory / "checksums"),
        "ARCHIVE_DIR": "",
        "no_proxy": "*",
    }.items():
        monkeypatch.setenv(name, value)
    return directory


class Done:
    """Exit code and output of a command."""

    def __init__(self, returncode: int, stdout: str, stderr: str) -> None:
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


Download = Callable[..., Done]


@pytest.fixture
def download(capsys: pytest.CaptureFixture[str]) -> Download:
    """`fairseq-deep download WORD ...`, in this process."""

    def run(*words: object) -> Done:
        code = main(["download", *map(str, words)])
        return Done(code, *capsys.readouterr())

    return run


def tgz(*names: str, size: int = 3000) -> bytes:
    """An archive whose members are incompressible."""
    stream = io.BytesIO()
    generator = random.Random(str(names))
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(generator.randbytes(size)))
    return stream.getvalue()


def pin(here: Path, name: str, content: bytes, kind: str = "sha256") -> str:
    known = hashlib.new(kind, content).hexdigest()
    (here / "checksums").write_text(f"# remark\n{known}  {name}\n")
    return known


ARCHIVE = tgz("training/a b.de", "training/a b.en", "other/c.fr")


def test_the_sum_of_what_nobody_knows_is_printed(server: Server, here: Path, download: Download) -> None:
    server.files["x.tgz"] = ARCHIVE
    done = download("x.tgz", f"{server.url}/whole/x.tgz")
    assert done.returncode == 0, done.stderr
    assert (here / "cache/x.tgz").read_bytes() == ARCHIVE
    assert f"{hashlib.sha256(ARCHIVE).hexdigest()}  x.tgz" in done.stdout
    assert sorted(path.name for path in (here / "cache").iterdir()) == [".x.tgz.lock", "x.tgz"]


@pytest.mark.parametrize("kind", ["md5", "sha1", "sha256"])
def test_a_known_sum_is_checked(server: Server, here: Path, download: Download, kind: str) -> None:
    server.files["x.tgz"] = ARCHIVE
    pin(here, "x.tgz", ARCHIVE, kind)
    done = download("x.tgz", f"{server.url}/whole/x.tgz")
    assert (done.returncode, "not pinned" in done.stdout) == (0, False)


def test_a_wrong_sum_names_file_expected_and_found_and_is_never_used(
    server: Server, here: Path, download: Download
) -> None:
    server.files["x.tgz"] = ARCHIVE
    known = pin(here, "x.tgz", b"another file")
    done = download("x.tgz", f"{server.url}/whole/x.tgz")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    for word in (f"error: {here}/cache/x.tgz:", known, hashlib.sha256(ARCHIVE).hexdigest(), "x.tgz.wrong"):
        assert word in line
    assert (here / "cache/x.tgz.wrong").read_bytes() == ARCHIVE
    assert not (here / "cache/x.tgz").exists()


def test_mirrors_are_tried_in_turn(server: Server, here: Path, download: Download) -> None:
    server.files["x.tgz"] = ARCHIVE
    done = download("x.tgz", f"{server.url}/gone/x.tgz", f"{server.url}/page/x.tgz", f"{server.url}/moved/x.tgz")
    assert done.returncode == 0, done.stderr
    assert (here / "cache/x.tgz").read_bytes() == ARCHIVE
    assert server.asked_for() == ["/gone/x.tgz", "/page/x.tgz", "/moved/x.tgz", "/whole/x.tgz"]


def test_a_web_page_is_no_archive(server: Server, here: Path, download: Download) -> None:
    done = download("x.tgz", f"{server.url}/page/x.tgz", f"{server.url}/gone/x.tgz")
    assert done.returncode == 2
    assert "a web page, not x.tgz" in done.stderr
    assert f"{server.url}/gone/x.tgz: HTTP Error 404: " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (here / "cache/x.tgz").exists()


def test_an_interrupted_download_is_continued(server: Server, here: Path, download: Download) -> None:
    server.files["x.tgz"] = ARCHIVE
    (here / "cache").mkdir()
    (here / "cache/x.tgz.part").write_bytes(ARCHIVE[:2000])
    done = download("x.tgz", f"{server.url}/whole/x.tgz")
    assert done.returncode == 0, done.stderr
    assert (here / "cache/x.tgz").read_bytes() == ARCHIVE
    assert server.asked == [("/whole/x.tgz", "bytes=2000-")]


def test_a_connection_that_breaks_is_taken_up_again(server: Server, here: Path, download: Download) -> None:
    server.files["x.tgz"] = ARCHIVE
    done = download("x.tgz", f"{server.url}/drops/x.tgz")
    assert done.returncode == 0, done.stderr
    assert (here / "cache/x.tgz").read_bytes() == ARCHIVE
    assert server.asked[1:3] == [("/drops/x.tgz", "bytes=1000-"), ("/drops/x.tgz", "bytes=2000-")]


def test_a_download_that_was_complete_before_the_kill_is_not_repeated(
    server: Server, here: Path, download: Download
) -> None:
    server.files["x.tgz"] = ARCHIVE
    (here / "cache").mkdir()
    (here / "cache/x.tgz.part").write_bytes(ARCHIVE)
    done = download("x.tgz", f"{server.url}/whole/x.tgz")
    assert done.returncode == 0, done.stderr
    assert (here / "cache/x.tgz").read_bytes() == ARCHIVE
    assert len(server.asked) == 1


@pytest.mark.parametrize("how", ["plain", "whole"])
def test_a_part_that_cannot_be_continued_is_downloaded_anew(
    server: Server, here: Path, download: Download, how: str
) -> None:
    """``plain``: the server does not continue. ``whole``: the part was the beginning of something else."""
    server.files["x.tgz"] = ARCHIVE
    pin(here, "x.tgz", ARCHIVE)
    (here / "cache").mkdir()
    (here / "cache/x.tgz.part").write_bytes(ARCHIVE[:500] if how == "plain" else b"?" * 500)
    done = download("x.tgz", f"{server.url}/{how}/x.tgz")
    assert done.returncode == 0, done.stderr
    assert (here / "cache/x.tgz").read_bytes() == ARCHIVE


def test_a_part_outlives_mirrors_that_are_gone(server: Server, here: Path, download: Download) -> None:
    (here / "cache").mkdir()
    (here / "cache/x.tgz.part").write_bytes(ARCHIVE[:500])
    done = download("x.tgz", f"{server.url}/gone/x.tgz", "http://127.0.0.1:9/x.tgz")
    assert done.returncode == 2
    assert (here / "cache/x.tgz.part").read_bytes() == ARCHIVE[:500]


def test_nothing_is_downloaded_twice(server: Server, here: Path, download: Download) -> None:
    server.files["x.tgz"] = ARCHIVE
    for _ in range(2):
        done = download("x.tgz", f"{server.url}/whole/x.tgz")
        assert done.returncode == 0
    assert len(server.asked) == 1
    assert "kept" in done.stdout


def test_a_copy_of_ones_own_needs_no_network(server: Server, here: Path, download: Download) -> None:
    (here / "own").mkdir()
    (here / "own/x.tgz").write_bytes(ARCHIVE)
    done = download("x.tgz", f"{server.url}/whole/x.tgz", "--archive-dir", here / "own")
    assert (done.returncode, done.stdout) == (0, "")
    assert server.asked == []


def test_a_copy_of_ones_own_is_checked_and_left_where_it_is(here: Path, download: Download) -> None:
    (here / "own").mkdir()
    (here / "own/x.tgz").write_bytes(ARCHIVE)
    known = pin(here, "x.tgz", b"another file")
    done = download("x.tgz", "http://127.0.0.1:9/x.tgz", "--archive-dir", here / "own")
    found = hashlib.sha256(ARCHIVE).hexdigest()
    assert done.returncode == 2
    assert done.stderr == f"error: {here}/own/x.tgz: wrong checksum: {known} expected, {found} found\n"
    assert (here / "own/x.tgz").exists()


def test_a_missing_copy_is_one_line_with_all_addresses(
    here: Path, download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHIVE_DIR", str(here / "own"))
    done = download("x.tgz", "http://one/x.tgz", "http://two/x.tgz")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {here}/own/x.tgz: no such file")
    assert line.endswith("http://one/x.tgz http://two/x.tgz")


def test_a_misspelt_file_of_sums_is_no_file_without_sums(server: Server, here: Path, download: Download) -> None:
    server.files["x.tgz"] = ARCHIVE
    done = download("x.tgz", f"{server.url}/whole/x.tgz", "--checksums", here / "cheksums")
    assert (done.returncode, server.asked) == (2, [])
    assert done.stderr == f"error: {here}/cheksums: cannot be read; CHECKSUMS names the file of known checksums\n"


def test_a_dry_run_prints_and_touches_nothing(server: Server, here: Path, download: Download) -> None:
    done = download("x.tgz", f"{server.url}/whole/x.tgz", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"curl --output '{here}/cache/x.tgz' {server.url}/whole/x.tgz\n"
    assert server.asked == []
    assert [path.name for path in here.iterdir()] == ["checksums"]


def test_a_second_job_waits_and_then_finds_the_file(server: Server, here: Path) -> None:
    server.files["x.tgz"] = ARCHIVE
    job = chosen()
    threads = [threading.Thread(target=job.get, args=("x.tgz", [f"{server.url}/whole/x.tgz"])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (here / "cache/x.tgz").read_bytes() == ARCHIVE
    assert len(server.asked) == 1


def test_what_is_no_address_and_a_full_disk_are_one_line(server: Server, here: Path, download: Download) -> None:
    assert "x.tgz: unknown url type: 'mirror/x.tgz'; " in download("x.tgz", "mirror/x.tgz").stderr
    server.files["x.tgz"] = ARCHIVE
    (here / "cache/x.tgz.part").symlink_to("/dev/full")
    done = download("x.tgz", f"{server.url}/whole/x.tgz")
    assert done.stderr == f"error: {here}/cache/x.tgz.part: cannot be written; is the disk full?\n"
