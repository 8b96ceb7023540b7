"""A package: one directory that is a whole translator, and that holds no path of the machine that made it.

``translator.json`` says what it is and has the SHA-256 of every other file, which is checked when it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum, write_whole
from fairseq_plugins.text.lines import read_lines
from fairseq_plugins.translator.form import Form
from fairseq_plugins.translator.model import build, dictionaries_of, read_weights

MANIFEST, WEIGHTS = "translator.json", "weights.safetensors"
SUMS = "SHA256SUMS"
"""In a directory without a manifest: what sha256sum prints, and checks with -c."""
FORMAT = 1
"""Raised when an older version of this code could not read a new package."""


@dataclass(frozen=True)
class Package:
    """A package that has been opened.

    Args:
        directory: where it is.
        content: of its ``translator.json``.
    """

    directory: Path
    content: Mapping[str, Any]

    @property
    def form(self) -> Form:
        """What its text is in."""
        return Form(**self.content["text"])

    @property
    def engines(self) -> dict[str, dict[str, Any]]:
        """What ``fairseq-deep export`` has added, by the name of its directory."""
        return dict(self.content["engines"])

    def dictionaries(self) -> Any:
        """``source_dictionary`` and ``target_dictionary``."""
        form = self.form
        return dictionaries_of(*(self.directory / f"dict.{language}.txt" for language in (form.source, form.target)))

    def model(self) -> Any:
        """The model, float32, in evaluation mode.

        Raises:
            UserError: the weights do not fit.
        """
        path = self.directory / WEIGHTS
        return build(self.content["model"], read_weights(path), self.dictionaries(), path)


def open_package(directory: Path) -> Package:
    """Open a package and check that its files are those that were packaged.

    Raises:
        UserError: it is absent, damaged, of a later format, or no package.
    """
    manifest = directory / MANIFEST
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory; fairseq-deep package makes one of a training")
    if not manifest.is_file():
        raise UserError(
            f"{directory}: not a package: it has no {MANIFEST}; fairseq-deep package makes one of a training"
        )
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        found = content["format"]
        package = Package(directory, content)
        if found == FORMAT:
            _ = package.form, content["model"], content["search"], content["positions"]
            files = [content["files"], *(engine["files"] for engine in package.engines.values())]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{manifest}: damaged: {type(error).__name__}: {error}") from None
    if found != FORMAT:
        raise UserError(f"{directory}: a package of format {found}; this version of fairseq-deep reads {FORMAT}")
    for name, expected in (item for each in files for item in each.items()):
        _check(directory / name, expected)
    return package


def _check(path: Path, expected: str, source: str = MANIFEST) -> None:
    if not path.is_file():
        whole = "package" if source == MANIFEST else "directory"
        raise UserError(f"{path}: no such file; the {whole} is incomplete")
    if checksum(path) != expected:
        raise UserError(f"{path}: damaged: its SHA-256 is not the one in {source}")


def write_manifest(directory: Path, content: Mapping[str, Any]) -> None:
    """Write ``translator.json``; the file appears when it is whole."""
    write_whole(directory / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def checksums(directory: Path, below: Path | None = None) -> dict[str, str]:
    """SHA-256 of every file of ``directory`` or ``below`` it, by its path in ``directory``; the manifest has none."""
    paths = sorted(path for path in (below or directory).rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(directory).as_posix(): checksum(path) for path in paths}


def write_sums(directory: Path) -> None:
    """Write the SHA-256 of every file beside them."""
    lines = (f"{digest}  {name}\n" for name, digest in checksums(directory).items())
    write_whole(directory / SUMS, "".join(lines))


def require_sums(directory: Path) -> None:
    """Check the files of a directory against its sums, if it has them.

    Raises:
        UserError: a file is missing or another, or the sums are damaged.
    """
    sums = directory / SUMS
    if not sums.is_file():
        return
    for line in read_lines(sums):
        digest, separator, name = line.partition("  ")
        if not separator or not name:
            raise UserError(f"{sums}: damaged: not the output of sha256sum")
        _check(directory / name, digest, SUMS)
