"""``from_pretrained("hub.tar.gz")`` writes outside of its directory what the archive says, and deletes the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairseq import file_utils

from fairseq_plugins.archives import unpack


def unpack_inside(load: Callable[[str], str | None], archive_file: str) -> str | None:
    """``load_archive_file``, with an archive unpacked beside it by the rules of this package, or a UserError."""
    try:
        path = Path(file_utils.cached_path(archive_file, cache_dir=None))
    except OSError:
        return load(archive_file)  # which says why
    if path.is_dir():
        return str(path)
    place = path.with_name(f"{path.name}.unpacked")
    if not place.exists():
        unpack(path, place)
    inside = list(place.iterdir())
    return str(inside[0] if len(inside) == 1 and inside[0].is_dir() else place)


WRAPPED = ((file_utils, "load_archive_file", unpack_inside),)
