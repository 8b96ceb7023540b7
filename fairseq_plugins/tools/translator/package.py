"""A package: one directory that is a complete translator, without any path of the machine that made it.

``translator.json`` describes the package and has the SHA-256 of every other file. Files are checked when the package is
opened; the weights, which may be large, when an engine reads them. An engine of CTranslate2 needs neither torch nor
fairseq, so they are imported where a model of this package is made.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import locked, write_whole
from fairseq_plugins.records import parse_json, read_json, require
from fairseq_plugins.search import GNMT, STOCK
from fairseq_plugins.sums import checksum
from fairseq_plugins.tools.text.description import SUBWORDS, TOKENISERS
from fairseq_plugins.tools.translator.preprocessor import Preprocessor

MANIFEST, WEIGHTS = "translator.json", "weights.safetensors"
FORMAT = 1
"""Increases when an older version of this code could not read a new package."""
SEARCH: Mapping[str, type] = {
    "beam": int,
    "lenpen": float,
    "lenpen_form": str,
    "max_len_a": float,
    "max_len_b": int,
    "min_len": int,
    "no_repeat_ngram_size": int,
}
"""Settings of a search that a package keeps; CTranslate2 lacks only the form of the length penalty."""
FASTEST = ("int8", "int8_float16", "int8_bfloat16", "int8_float32", "float16", "bfloat16", "int16", "float32")
"""Kinds of weights of CTranslate2, from the fastest on."""
STEEPEST = 100
"""The largest length penalty; the length of a sentence to a higher power may overflow."""
SIZE, SUMS, SWITCH = range(2, 1 << 24), {str: str}, (bool, None)
CONTENT = {
    "text": {
        **{"source": str, "target": str, "tokeniser": set(TOKENISERS), "subwords": set(SUBWORDS)},
        **dict.fromkeys(("normalise", "apostrophes", "aggressive", "escape", "lower_case", "truecased"), SWITCH),
        "threshold": (int, None),
    },
    "search": {name: {STOCK, GNMT} if kind is str else kind for name, kind in SEARCH.items()},
    "positions": [SIZE],
    "model": {
        **dict.fromkeys(("encoder_layers", "decoder_layers"), range(1, 10_000)),
        **dict.fromkeys(
            ("encoder_embed_dim", "decoder_embed_dim", "max_source_positions", "max_target_positions"), SIZE
        ),
    },
    "files": SUMS,
    "engines": {str: {"quantization": set(FASTEST), "files": SUMS}},
}
"""The format of ``translator.json``; see :mod:`fairseq_plugins.records`."""


@dataclass(frozen=True)
class Package:
    """A package that has been opened, and the content of its ``translator.json``."""

    directory: Path
    content: Mapping[str, Any]

    @property
    def text(self) -> Preprocessor:
        """Return how its text is prepared."""
        return Preprocessor(**self.content["text"])

    def dictionaries(self) -> Any:
        """Return ``source_dictionary`` and ``target_dictionary``."""
        from fairseq_plugins.tools.translator.model import dictionaries_of

        text = self.text
        return dictionaries_of(*(self.directory / f"dict.{language}.txt" for language in (text.source, text.target)))

    def model(self) -> Any:
        """Return the model, in float32 and evaluation mode; a UserError if the weights are damaged or do not fit."""
        from fairseq_plugins.checkpoints.fold import build
        from fairseq_plugins.tools.translator.model import read_weights

        path = self.directory / WEIGHTS
        require_unchanged(path, self.content["files"].get(WEIGHTS, ""))
        return build(self.content["model"], read_weights(path), self.dictionaries(), path)


def open_package(directory: Path) -> Package:
    """Open a package and check its files; :func:`~fairseq_plugins.tools.translator.engines.choose` checks an engine.

    Raises UserError: the directory is absent, damaged, of a later format, or no package.
    """
    manifest = directory / MANIFEST
    if not manifest.is_file():
        problem = f"not a package: it has no {MANIFEST}" if directory.is_dir() else "no such directory"
        raise UserError(f"{directory}: {problem}; fairseq-deep package makes a package from a training")
    try:
        content: dict[str, Any] = parse_json(manifest.read_bytes(), {"format": int})
        if content["format"] != FORMAT:
            raise UserError(f"a package of format {content['format']}; this version of fairseq-deep reads {FORMAT}")
        require(content, CONTENT)
        Preprocessor(**content["text"])
        content["search"] = checked_search(content["search"])
        if len(content["positions"]) != 2 or WEIGHTS not in content["files"]:
            raise UserError(f"not two positions, or no {WEIGHTS} in files")
    except (ValueError, TypeError) as error:
        raise UserError(f"{manifest}: {error}") from None
    for name, expected in content["files"].items():
        if name != WEIGHTS:
            require_unchanged(directory / name, expected)
    return Package(directory, content)


def checked_search(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a search in their types, or raise a UserError; users may edit them."""
    if unknown := [name for name in settings if name not in SEARCH]:
        raise UserError(f"search: {unknown_name('setting', unknown[0], SEARCH)}")
    # The shortest source has two tokens: a word and its end.
    longest = 2 * settings["max_len_a"] + settings["max_len_b"]
    lengths_fit = settings["max_len_a"] >= 0 and 1 <= longest < SIZE.stop and 0 <= settings["min_len"] <= longest
    if settings["beam"] < 1 or not lengths_fit:
        raise UserError("search: 0 <= min_len <= 2 max_len_a + max_len_b; the sum and beam >= 1, max_len_a >= 0")
    if abs(settings["lenpen"]) > STEEPEST:
        raise UserError(f"search: lenpen {settings['lenpen']:g}: from -{STEEPEST} to {STEEPEST}")
    return {name: kind(settings[name]) for name, kind in SEARCH.items()}


def require_replaceable(out: Path, force: bool, manifest: str = "") -> None:
    """Raise a UserError unless ``out`` is free, or ``force`` overwrites a directory with a ``manifest``."""
    if not os.path.lexists(out):
        return
    if not force:
        raise UserError(f"{out} exists; --force overwrites it")
    # A link may lead to anything.
    if out.is_symlink() or not out.is_dir() or (any(out.iterdir()) and not (out / manifest).exists()):
        raise UserError(f"{out}: not made by this command, and --force overwrites nothing else; choose another name")


def require_unchanged(path: Path, expected: str) -> None:
    """Check that a file of a package has the SHA-256 ``expected``, or raise a UserError."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; the package is incomplete")
    if checksum(path) != expected:
        raise UserError(f"{path}: damaged: its SHA-256 is not the one in {MANIFEST}")


def add_engine(directory: Path, out: Path, quantization: str) -> None:
    """Enter the engine in ``out`` into the manifest, and remove engines whose directories are gone."""
    # Two exports at once must both be entered.
    with locked(directory):
        content = read_json(directory / MANIFEST, CONTENT)
        engines = {name: entry for name, entry in content["engines"].items() if (directory / name).is_dir()}
        engines[out.name] = {"quantization": quantization, "files": checksums(directory, out)}
        write_manifest(directory, {**content, "engines": engines})


def write_manifest(directory: Path, content: Mapping[str, Any]) -> None:
    """Write ``translator.json`` atomically."""
    write_whole(directory / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def checksums(directory: Path, below: Path | None = None) -> dict[str, str]:
    """Return the SHA-256 of every file except the manifest in ``below``, by default in ``directory``, by its path."""
    paths = sorted(path for path in (below or directory).rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(directory).as_posix(): checksum(path) for path in paths}
