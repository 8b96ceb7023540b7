"""The file that ``torch.save`` writes: a zip archive whose records are stored as they are, each with its CRC-32.

torch does not compare the CRC-32 when it reads (its zip library is built without that), so that a flipped or zeroed
byte becomes a weight. Here it is compared, which takes about a second for each GB.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fairseq_plugins.archive.pickled import require_plausible
from fairseq_plugins.errors import UserError

ZIP = b"PK\3\4"
"""What a zip archive begins with."""
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""What a file of torch before 1.6, or of ``_use_new_zipfile_serialization=False``, begins with."""
BLOCK = 1 << 20
"""Bytes."""


def require_sound(path: Path) -> None:
    """Check the bytes of a file before ``torch.load`` reads it: whole, torch's, undamaged, with plausible numbers.

    Nothing in it is executed, and nothing is allocated that the file could not hold.

    Raises:
        UserError: one line with what is wrong; a damaged record is named.
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as stream:
        start = stream.read(len(LEGACY))
        if not start:
            raise UserError(f"checkpoint {path} is empty")
        if start.startswith(ZIP):
            _require_sound_archive(path, stream)
        elif start == LEGACY:
            stream.seek(0)
            require_plausible(path, stream, _size(path), pickles=4)
        else:
            raise UserError(f"checkpoint {path} is truncated or not a checkpoint")


def _require_sound_archive(path: Path, stream: IO[bytes]) -> None:
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UserError(f"checkpoint {path} is truncated or not a checkpoint") from error
    records = archive.infolist()
    content = [record for record in records if record.filename.endswith("/data.pkl")]
    if len(content) != 1:
        raise UserError(f"{path} is a zip archive, but not one that torch has written: it needs one data.pkl")
    names = {record.filename for record in records}
    stored = all(record.compress_type == zipfile.ZIP_STORED for record in records)
    if not stored or len(names) != len(records) or sum(record.file_size for record in records) > _size(path):
        raise UserError(f"{path} is a zip archive, but not one that torch has written: its records are packed")
    if any(record.CRC for record in records):
        for record in records:
            _require_whole(path, archive, record)
    else:  # torch.serialization.set_crc32_options(False) leaves every one at zero.
        content[0].CRC = None  # type: ignore[assignment]
    place = content[0].filename.removesuffix("data.pkl")
    sizes = {record.filename.removeprefix(f"{place}data/"): record.file_size for record in records}
    with _whole(path, content[0]), archive.open(content[0]) as packed:
        pickled = packed.read()
    require_plausible(path, io.BytesIO(pickled), _size(path), sizes)


def _require_whole(path: Path, archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    with _whole(path, record), archive.open(record) as content:
        while content.read(BLOCK):
            pass


@contextmanager
def _whole(path: Path, record: zipfile.ZipInfo) -> Iterator[None]:
    """Name the record that cannot be read."""
    try:
        yield
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        name = record.filename.partition("/")[2] or record.filename
        raise UserError(f"checkpoint {path} is damaged: the bytes of its record {name!r} have changed") from error


def _size(path: Path) -> int:
    return path.stat().st_size
