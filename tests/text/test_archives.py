"""Archives: read to the end before they are trusted, unpacked whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.text.__main__ import main
from fairseq_plugins.text.archives import check_archive, known_checksums, unpack

FILES = {
    "a/x.de": random.Random(1).randbytes(3000),
    "a/b/y.en": "é\n".encode(),
    "z.fr": b"",
    "a/b/c.de.gz": b"\x1f\x8b",
}
PAGE = b"\n <!DOCTYPE html>\n<html>404</html>"


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("empty") if hasattr(archive, "mkdir") else None
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


TAR = tar_of(FILES)
ARCHIVES: dict[str, bytes] = {
    "x.tar": TAR,
    "x.tgz": gzip.compress(TAR),
    "x.tar.gz": gzip.compress(TAR),
    "x.zip": zip_of(FILES),
    # Decompressed on the way by a browser that kept the name.
    "decompressed.tgz": TAR,
}


def written(directory: Path, name: str, content: bytes) -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


def problem(action: Callable[[], object]) -> str:
    with pytest.raises(UserError) as raised:
        action()
    [message] = raised.value.problems
    return message


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_kind_is_read_and_unpacked(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ARCHIVES[name])
    assert check_archive(path) == len(FILES)
    assert unpack(path, tmp_path / "to") == len(FILES)
    found = {str(file.relative_to(tmp_path / "to")): file.read_bytes() for file in (tmp_path / "to").rglob("*.*")}
    assert found == FILES
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([name, "to"])


@given(st.data())
@pytest.mark.parametrize("name", ARCHIVES)
def test_a_cut_off_archive_is_noticed_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    content = ARCHIVES[name]
    # A tar archive ends in blocks of zeros: without some of these it is still whole.
    most = len(content.rstrip(b"\0")) if content is TAR else len(content) - 1
    path = written(tmp_path_factory.mktemp("cut"), name, content[: data.draw(st.integers(0, most))])
    assert str(path) in problem(lambda: check_archive(path))
    assert str(path) in problem(lambda: unpack(path, path.parent / "to"))
    assert [file.name for file in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", [name for name in ARCHIVES if not name.endswith(("tar", "decompressed.tgz"))])
def test_a_changed_byte_is_noticed(tmp_path: Path, name: str) -> None:
    content = bytearray(ARCHIVES[name])
    middle = len(content) // 2
    content[middle] ^= 0x55
    assert "damaged" in problem(lambda: check_archive(written(tmp_path, name, bytes(content))))


@pytest.mark.parametrize("name", [*ARCHIVES, "x.gz", "x.txt"])
def test_a_web_page_is_named_as_one(tmp_path: Path, name: str) -> None:
    message = problem(lambda: check_archive(written(tmp_path, name, PAGE)))
    assert message.startswith(f"{tmp_path / name}: a web page, not {name}")


def test_the_name_to_be_says_what_it_should_be(tmp_path: Path) -> None:
    path = written(tmp_path, "x.tgz.part", ARCHIVES["x.tgz"])
    assert check_archive(path, "x.tgz") == len(FILES)
    assert "not what the name x.zip says" in problem(lambda: check_archive(path, "x.zip"))


def test_single_files(tmp_path: Path) -> None:
    assert check_archive(written(tmp_path, "x.gz", gzip.compress(b"text"))) == 1
    assert check_archive(written(tmp_path, "x.txt", b"text")) == 1
    assert "truncated" in problem(lambda: check_archive(written(tmp_path, "x.gz", gzip.compress(b"text")[:-3])))
    assert "Not a gzipped file" in problem(lambda: check_archive(written(tmp_path, "x.gz", b"text")))
    assert problem(lambda: check_archive(written(tmp_path, "x.tgz", b""))) == f"{tmp_path}/x.tgz: empty"


def test_only_what_is_wanted(tmp_path: Path) -> None:
    path = written(tmp_path, "x.tgz", ARCHIVES["x.tgz"])
    assert unpack(path, tmp_path / "to", ["*.de", "a/b/*.en"]) == 2
    assert sorted(file.name for file in (tmp_path / "to").rglob("*.*")) == ["x.de", "y.en"]
    message = problem(lambda: unpack(path, tmp_path / "other", ["*.de", "*.cs", "*.ru"]))
    assert message == f"{path}: nothing matches *.cs *.ru; it contains a/x.de, a/b/y.en, z.fr, a/b/c.de.gz"
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["md5", "sha1", "sha256"])
def test_members_with_known_sums(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "x.zip", ARCHIVES["x.zip"])
    right = hashlib.new(kind, FILES["a/x.de"]).hexdigest()
    wrong = hashlib.new(kind, b"?").hexdigest()
    sums = written(tmp_path, "sums", f"# about\n\n{right}  x.de\n{wrong}  not-here\nno sum  y.en\n".encode())
    assert known_checksums(sums) == {"x.de": right, "not-here": wrong}
    unpack(path, tmp_path / "to", sums=known_checksums(sums))
    message = problem(lambda: unpack(path, tmp_path / "other", sums={"x.de": wrong}))
    assert message == f"{path}: x.de: wrong checksum: {wrong} expected, {right} found"
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["/etc/outside", "../outside", "a/../../outside"])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, "x.tar", tar_of({name: b"evil", "b": b"good"}))
    (tmp_path / "in").mkdir()
    try:
        unpack(path, tmp_path / "in" / "to")
    except UserError:
        assert not (tmp_path / "in" / "to").exists()
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "in" / "outside").exists()
    assert not Path("/etc/outside").exists()


def test_a_link_to_the_outside_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("file"))
    path = written(tmp_path, "x.tar", stream.getvalue())
    assert "not unpacked: " in problem(lambda: unpack(path, tmp_path / "to"))


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    path = written(tmp_path, "x.zip", ARCHIVES["x.zip"])
    (tmp_path / "to").mkdir()
    assert problem(lambda: unpack(path, tmp_path / "to")) == f"{tmp_path / 'to'}: exists already"
    assert "legal endings: .tar .tgz" in problem(lambda: unpack(written(tmp_path, "x.txt", b"x"), tmp_path / "b"))


@pytest.mark.parametrize("name", ["x.tgz", "x.zip"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    path = written(tmp_path, name, ARCHIVES[name])
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    assert main(["unpack", str(path), str(tmp_path / "to")]) == 2
    assert capsys.readouterr().err == "error: No space left on device: somewhere\n"
    assert [file.name for file in tmp_path.iterdir()] == [name]
