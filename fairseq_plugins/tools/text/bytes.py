"""Cut a file into training, validation and test data, and make one token of each byte.

The token of a byte is its number, 0 to 255. A line feed only ends a line, because fairseq counts the end of a line as
one token. So there are as many predictions as bytes (one more if a part does not end with a line feed), and the loss in
base 2 is bits per byte.
"""

from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import require_no_input
from fairseq_plugins.lines import whole_files

SHARES = {"train": 90, "valid": 5, "test": 5}
"""Percent of the file: 90, 5 and 5 million of enwik8's 100,000,000 bytes, as in every paper."""

_TOKENS = [b"\n" if byte == ord("\n") else b"%d " % byte for byte in range(256)]


def tokens_of(text: bytes) -> bytes:
    """``text`` with each byte as its number and a space; line feeds stay."""
    return b"".join(map(_TOKENS.__getitem__, text))


def cut(source: Path, place: Path) -> None:
    """Cut a file into the files train, valid and test: 90, 5 and 5 percent of its bytes, in their order; none empty."""
    size = source.stat().st_size
    sizes = [size * share // 100 for share in SHARES.values()]
    sizes[-1] += size - sum(sizes)
    if 0 in sizes:
        raise UserError(f"{source}: {size:,} bytes, too few to cut into three parts")
    for split in SHARES:
        require_no_input(place / split, [source])
    place.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as stream:
        for split, count in zip(SHARES, sizes, strict=True):
            (place / split).write_bytes(stream.read(count))


def write_tokens(source: Path, output: Path) -> None:
    """Write each byte of a file as a token."""
    piece = b""
    with open(source, "rb") as stream, whole_files(output) as [text]:
        while following := stream.read(1 << 20):
            piece = following
            text.write(tokens_of(piece))
        if not piece:
            raise UserError(f"{source}: empty")
        if not piece.endswith(b"\n"):
            text.write(b"\n")
