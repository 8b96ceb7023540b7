"""Archives are unpacked whole or not at all, and nothing is written outside."""

import errno
import hashlib
import io
import random
import shutil
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.tools.text.__main__ import main
from fairseq_plugins.tools.text.archives import known_checksums, unpack
from tests.refusals import refused
from tests.scripts.archives import write_archive

FILES = {"a/x.de": random.Random(1).randbytes(3000), "a/b/y.en": b"\xc3\xa9\n", "z.fr": b"", "a/b/c.de.gz": b"\x1f\x8b"}
COMPRESSED = pytest.mark.parametrize("name", ["x.tgz", "x.zip"])


@pytest.mark.parametrize("name", ["x.tar", "x.tgz", "x.zip", "decompressed.tgz"])
def test_every_kind_is_unpacked_whole_or_in_part(tmp_path: Path, name: str) -> None:
    if name == "decompressed.tgz":
        # Decompressed on the way by a browser that kept the name.
        path = write_archive(tmp_path / "x.tar", FILES).rename(tmp_path / name)
    else:
        path = write_archive(tmp_path / name, FILES)
    unpack(path, tmp_path / "to")
    unpacked = {str(file.relative_to(tmp_path / "to")): file.read_bytes() for file in (tmp_path / "to").rglob("*.*")}
    assert unpacked == FILES
    assert unpack(path, tmp_path / "some", only=["*.de", "a/b/*.en"]) == f"{name}: 2 files unpacked"
    assert sorted(file.name for file in (tmp_path / "some").rglob("*.*")) == ["x.de", "y.en"]
    message = refused(unpack, path, tmp_path / "other", only=["*.de", "*.cs", "*.ru"])
    assert message.startswith(f"{path}: nothing matches *.cs *.ru; it contains a/x.de, a/b/y.en, ")
    assert refused(unpack, path, tmp_path / "to") == f"{tmp_path / 'to'}: exists already"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([name, "some", "to"])


@given(st.data())
@COMPRESSED
def test_every_cut_archive_is_noticed(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    path = write_archive(tmp_path_factory.mktemp("truncated") / name, FILES)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert refused(unpack, path, path.parent / "to").startswith(f"{path}: not unpacked: ")
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_damage_is_noticed(tmp_path: Path) -> None:
    for name in ("x.tgz", "x.tar.bz2", "x.tar.xz", "x.zip"):
        path = write_archive(tmp_path / name, FILES)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x55
        path.write_bytes(content)
        assert refused(unpack, path, tmp_path / "to").startswith(f"{path}: not unpacked: ")
    path.write_bytes(b"not an archive")
    assert "\n" not in refused(unpack, path, tmp_path / "to")
    # Without compression only a checksum tells of a changed byte; 3,584 bytes are exactly the first file; the
    # header of the second, cut or damaged, is no end either.
    path = write_archive(tmp_path / "x.tar", FILES)
    content = bytearray(path.read_bytes())
    assert content[3584:].startswith(b"a/b/y.en")
    damaged = content[:3590] + b"?" + content[3591:]
    for cut in (content[:3584], content[:3600], content[:2048], damaged):
        path.write_bytes(cut)
        assert "unexpected end of data" in refused(unpack, path, tmp_path / "to")


def test_members_with_known_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sums = write_archive(tmp_path / "x.zip", FILES), tmp_path / "sums"
    monkeypatch.setenv("CHECKSUMS", str(sums))
    for kind in ("md5", "sha1", "sha256"):
        right, wrong = (hashlib.new(kind, content).hexdigest() for content in (FILES["a/x.de"], b"?"))
        sums.write_text(f"# about\n\n{right}  x.de \n{wrong.upper()} *not here\n")
        assert known_checksums() == {"x.de": right, "not here": wrong}
        unpack(path, tmp_path / kind)
        sums.write_text(f"{wrong}  x.de\n")
        message = refused(unpack, path, tmp_path / "other")
        assert message == f"{path}: x.de: wrong checksum: {wrong} expected, {right} found"
        assert not (tmp_path / "other").exists()
    monkeypatch.delenv("CHECKSUMS")
    assert known_checksums()["training-parallel-europarl-v7.tgz"].startswith("0224c7c710c8a063")


def tar(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """An archive of members by name, type and target of a link; one of text holds ``evil``."""
    with tarfile.open(path, mode="w") as pack:
        for name, kind, target in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, target, 4 * (kind == tarfile.REGTYPE)
            pack.addfile(entry, io.BytesIO(b"evil"))
    return path


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    place = tmp_path / "in" / "to"
    for member in ("/etc/outside", "../outside", "a/../../outside"):
        for name in ("x.tar", "x.zip"):
            message = refused(unpack, write_archive(tmp_path / name, {member: b"evil"}), place)
            assert f"not unpacked: {member!r} leads outside" in message
    through = [("link", tarfile.SYMTYPE, ".."), ("link/outside", tarfile.REGTYPE, "")]
    for members in (through, [("link", tarfile.LNKTYPE, "../../outside")], [("pipe", tarfile.FIFOTYPE, "")]):
        assert "is a link or a device" in refused(unpack, tar(tmp_path / "links.tar", *members), place)
    # An unwanted member is not written either.
    unpack(tar(tmp_path / "links.tar", *through, ("a", tarfile.REGTYPE, "")), place, only=["a"])
    assert (place / "a").read_bytes() == b"evil"
    assert not [path for path in (Path("/etc/outside"), *tmp_path.rglob("outside")) if path.exists()]


@COMPRESSED
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, name, monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    path = write_archive(tmp_path / name, FILES)
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    assert main(["unpack", str(path), str(tmp_path / "to")]) == 2
    assert capsys.readouterr().err == "error: No space left on device: somewhere\n"
    assert [file.name for file in tmp_path.iterdir()] == [name]
