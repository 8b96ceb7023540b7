"""`fairseq-deep download`: mirrors, continued downloads, checksums, the user's own copies."""

import hashlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.pipeline.download import get
from tests.processes import full_disk_after
from tests.scripts.archives import packed
from tests.scripts.server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        running.files["x.tgz"] = ARCHIVE
        yield running


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "a directory with spaces" / "cache"
    directory.mkdir(parents=True)
    (tmp_path / "checksums").touch()
    settings = {"CACHE": str(directory), "CHECKSUMS": str(tmp_path / "checksums"), "ARCHIVE_DIR": "", "no_proxy": "*"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return directory


def download(name: str, *urls: str) -> int:
    """`fairseq-deep download NAME URL ...`, in this process."""
    return main(["download", name, *urls])


def pin(tmp_path: Path, content: bytes, kind: str = "sha256") -> str:
    known = hashlib.new(kind, content).hexdigest()
    (tmp_path / "checksums").write_text(f"# remark\n{known}  x.tgz\n")
    return known


MEMBERS = ("training/a b.de", "training/a b.en", "other/c.fr")
ARCHIVE = packed("x.tgz", {name: random.Random(name).randbytes(3000) for name in MEMBERS})


def test_the_sum_of_what_nobody_knows_is_printed_and_nothing_is_downloaded_twice(server, cache, capsys):
    assert download("x.tgz", f"{server.url}/whole/x.tgz") == 0
    assert (cache / "x.tgz").read_bytes() == ARCHIVE
    assert f"{hashlib.sha256(ARCHIVE).hexdigest()}  x.tgz" in capsys.readouterr().out
    assert sorted(path.name for path in cache.iterdir()) == [".x.tgz.lock", "x.tgz"]
    assert download("x.tgz", f"{server.url}/whole/x.tgz") == 0
    assert len(server.asked) == 1
    assert "kept" in capsys.readouterr().out


def test_a_known_sum_is_checked(server, cache, tmp_path, capsys):
    for kind in ("md5", "sha1", "sha256"):
        pin(tmp_path, ARCHIVE, kind)
        assert download("x.tgz", f"{server.url}/whole/x.tgz") == 0
        (cache / "x.tgz").unlink()
    assert "no known checksum" not in capsys.readouterr().out
    assert download("x.tgz", f"{server.url}/whole/x.tgz") == 0
    known = pin(tmp_path, b"another file")
    assert download("x.tgz", f"{server.url}/whole/x.tgz") == 2
    assert capsys.readouterr().err.endswith("delete it, and it is downloaded again\n")
    (cache / "x.tgz").unlink()
    assert download("x.tgz", f"{server.url}/whole/x.tgz") == 2
    [line] = capsys.readouterr().err.splitlines()
    for word in (f"error: {cache}/x.tgz:", known, hashlib.sha256(ARCHIVE).hexdigest(), "x.tgz.wrong"):
        assert word in line
    assert (cache / "x.tgz.wrong").read_bytes() == ARCHIVE
    assert not (cache / "x.tgz").exists()


def test_mirrors_take_turns(server: Server, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pin(tmp_path, ARCHIVE)
    assert download("x.tgz", *(f"{server.url}/{kind}/x.tgz" for kind in ("gone", "page", "moved"))) == 0
    assert (cache / "x.tgz").read_bytes() == ARCHIVE
    assert [path for path, _ in server.asked] == ["/gone/x.tgz", "/page/x.tgz", "/moved/x.tgz", "/whole/x.tgz"]
    (cache / "x.tgz").unlink()
    assert download("x.tgz", f"{server.url}/page/x.tgz", f"{server.url}/gone/x.tgz", "mirror/x.tgz") == 2
    [line] = capsys.readouterr().err.splitlines()
    for problem in ("wrong checksum: ", "/gone/x.tgz: HTTP Error 404: ", "unknown url type: 'mirror/x.tgz'"):
        assert problem in line
    assert not (cache / "x.tgz").exists()


def test_what_is_there_of_a_download_is_used(server: Server, cache: Path, tmp_path: Path) -> None:
    pin(tmp_path, ARCHIVE)
    wrong = []
    for kind, part, asked in (
        ("whole", ARCHIVE[:2000], ["bytes=2000-"]),
        ("whole", ARCHIVE, [f"bytes={len(ARCHIVE)}-"]),  # complete before a kill
        ("drops", b"", ["", "bytes=1000-", "bytes=2000-"]),  # the connection breaks again and again
        ("plain", ARCHIVE[:500], ["bytes=500-"]),  # the server cannot continue
        ("whole", b"?" * 500, ["bytes=500-", ""]),  # the beginning of another file
    ):
        server.asked.clear()
        if part:
            (cache / "x.tgz.part").write_bytes(part)
        code = download("x.tgz", f"{server.url}/{kind}/x.tgz")
        ranges = [wanted for _, wanted in server.asked][: len(asked)]
        if (code, ranges, (cache / "x.tgz").read_bytes() == ARCHIVE) != (0, asked, True):
            wrong.append((kind, part[:3], ranges))
        (cache / "x.tgz").unlink()
    assert wrong == []


def test_a_part_outlives_mirrors_that_are_gone(server: Server, cache: Path) -> None:
    (cache / "x.tgz.part").write_bytes(ARCHIVE[:500])
    assert download("x.tgz", f"{server.url}/gone/x.tgz", "http://127.0.0.1:9/x.tgz") == 2
    assert (cache / "x.tgz.part").read_bytes() == ARCHIVE[:500]


def test_a_copy_of_ones_own_is_checked_left_where_it_is_and_needs_no_network(cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ARCHIVE_DIR", str(tmp_path / "own"))
    urls = ("http://127.0.0.1:9/x.tgz", "http://two/x.tgz")
    assert download("x.tgz", *urls) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}/own/x.tgz: no such file")
    assert line.endswith(" ".join(urls))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/x.tgz").write_bytes(ARCHIVE)
    assert download("x.tgz", *urls) == 0
    known, found = pin(tmp_path, b"another file"), hashlib.sha256(ARCHIVE).hexdigest()
    assert download("x.tgz", *urls) == 2
    line = f"error: {tmp_path}/own/x.tgz: wrong checksum: {known} expected, {found} found\n"
    assert capsys.readouterr() == ("", line)
    assert (tmp_path / "own/x.tgz").exists()
    assert list(cache.iterdir()) == []


def test_a_misspelt_file_of_sums_is_no_file_without_sums(server, cache, monkeypatch, capsys):
    monkeypatch.setenv("CHECKSUMS", f"{cache}/cheksums")
    assert (download("x.tgz", f"{server.url}/whole/x.tgz"), server.asked) == (2, [])
    line = f"error: {cache}/cheksums: no such file or directory; CHECKSUMS names the file of known checksums\n"
    assert capsys.readouterr().err == line


def test_a_second_job_waits_and_then_finds_the_file(server: Server, cache: Path) -> None:
    threads = [threading.Thread(target=get, args=("x.tgz", [f"{server.url}/whole/x.tgz"])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache / "x.tgz").read_bytes() == ARCHIVE
    assert len(server.asked) == 1


def test_a_full_disk_is_one_line(server: Server, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with full_disk_after(1000):
        assert download("x.tgz", f"{server.url}/whole/x.tgz") == 2
    assert capsys.readouterr().err == f"error: {cache}/x.tgz.part: cannot be written; is the disk full?\n"


def test_nothing_is_downloaded_through_a_link(server, cache, tmp_path, capsys):
    (tmp_path / "secret").write_text("mine")
    (cache / "x.tgz.part").symlink_to(tmp_path / "secret")
    assert download("x.tgz", f"{server.url}/whole/x.tgz") == 2
    assert "a link, through which nothing is written; remove it" in capsys.readouterr().err
    assert (tmp_path / "secret").read_text() == "mine"
