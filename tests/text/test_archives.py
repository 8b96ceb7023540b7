"""Archives are unpacked whole or not at all, and nothing is written outside."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.text.__main__ import main
from fairseq_plugins.text.archives import is_web_page, known_checksums, unpack

FILES = {
    "a/x.de": random.Random(1).randbytes(3000),
    "a/b/y.en": "é\n".encode(),
    "z.fr": b"",
    "a/b/c.de.gz": b"\x1f\x8b",
}


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
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


TAR = tar_of(FILES)
ARCHIVES: dict[str, bytes] = {
    "x.tar": TAR,
    "x.tgz": gzip.compress(TAR),
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
def test_every_kind_is_unpacked_whole_or_in_part(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ARCHIVES[name])
    assert unpack(path, tmp_path / "to") == len(FILES)
    unpacked = {str(file.relative_to(tmp_path / "to")): file.read_bytes() for file in (tmp_path / "to").rglob("*.*")}
    assert unpacked == FILES
    assert unpack(path, tmp_path / "some", ["*.de", "a/b/*.en"]) == 2
    assert sorted(file.name for file in (tmp_path / "some").rglob("*.*")) == ["x.de", "y.en"]
    message = problem(lambda: unpack(path, tmp_path / "other", ["*.de", "*.cs", "*.ru"]))
    assert message.startswith(f"{path}: nothing matches *.cs *.ru; it contains a/x.de, a/b/y.en, ")
    assert problem(lambda: unpack(path, tmp_path / "to")) == f"{tmp_path / 'to'}: exists already"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([name, "some", "to"])


@given(st.data())
@pytest.mark.parametrize("name", ["x.tgz", "x.zip"])
def test_a_truncated_archive_is_noticed_wherever_it_ends(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    content = ARCHIVES[name]
    end = data.draw(st.integers(0, len(content) - 1))
    path = written(tmp_path_factory.mktemp("truncated"), name, content[:end])
    assert problem(lambda: unpack(path, path.parent / "to")).startswith(f"{path}: not unpacked: ")
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_damage_is_noticed(tmp_path: Path) -> None:
    for name in ("x.tgz", "x.zip"):
        content = bytearray(ARCHIVES[name])
        content[len(content) // 2] ^= 0x55
        path = written(tmp_path, name, bytes(content))
        assert problem(lambda path=path: unpack(path, tmp_path / "to")).startswith(f"{path}: not unpacked: ")
    path = written(tmp_path, "text.tgz", b"not an archive")
    assert "\n" not in problem(lambda: unpack(path, tmp_path / "to"))
    # Without compression only a checksum tells of a changed byte; 3,584 bytes are exactly the first file.
    assert TAR[3584:].startswith(b"a/b/y.en")
    for end in (2048, 3584):
        path = written(tmp_path, "x.tar", TAR[:end])
        assert "unexpected end of data" in problem(lambda path=path: unpack(path, tmp_path / "to"))


def test_a_web_page_is_one(tmp_path: Path) -> None:
    for content, expected in (
        (b"\n <!DOCTYPE html>\n<html>404</html>", True),
        (b'\xef\xbb\xbf<?xml version="1.0"?>', True),
        (b"", False),
        *((content, False) for content in ARCHIVES.values()),
    ):
        assert is_web_page(written(tmp_path, "x", content)) == expected


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


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    for name in ("/etc/outside", "../outside", "a/../../outside"):
        for ending, content in ((".tar", tar_of({name: b"evil"})), (".zip", zip_of({name: b"evil"}))):
            path, place = written(tmp_path, f"x{ending}", content), tmp_path / "in" / "to"
            try:
                unpack(path, place)
            except UserError:
                assert not place.exists()
            shutil.rmtree(place, ignore_errors=True)
            assert not [path for path in (Path("/etc/outside"), *tmp_path.rglob("outside")) if path.exists()]
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
    with tarfile.open(tmp_path / "link.tar", mode="w") as archive:
        archive.addfile(link)
    assert "not unpacked: " in problem(lambda: unpack(tmp_path / "link.tar", tmp_path / "to"))


@pytest.mark.parametrize("name", ["x.tgz", "x.zip"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    path = written(tmp_path, name, ARCHIVES[name])
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    assert main(["unpack", str(path), str(tmp_path / "to")]) == 2
    assert capsys.readouterr().err == "error: No space left on device: somewhere\n"
    assert [file.name for file in tmp_path.iterdir()] == [name]
