"""A small archive with the layout of the IWSLT'14 release: the same names, tags and XML."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tests import toy

TEST_SETS = ("TED.dev2010", "TED.tst2010", "TED.tst2011", "TED.tst2012", "TEDX.dev2012")
PAIRS = 460
SEGMENTS = 4
"""Sentences of each test set."""


def tags(lines: list[str]) -> str:
    """A train.tags file of one talk."""
    head = ["<url>http://www.ted.com/talks/1</url>", "<keywords>talks</keywords>", "<talkid>1</talkid>"]
    head += ["<title>Ein Talk</title>", "<description>TED Talk</description>"]
    return "".join(line + "\n" for line in head + lines)


def xml(language: str, name: str, lines: list[str]) -> str:
    """A development or test set."""
    segments = "".join(f'<seg id="{number}"> {line} </seg>\n' for number, line in enumerate(lines, start=1))
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset setid="{name}" srclang="{language}">\n'
    return f'{head}<doc docid="1">\n<title>Titel</title>\n{segments}</doc>\n</srcset>\n</mteval>\n'


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences with capital letters and full stops."""
    return [(f"{de.capitalize()}, z.B.", f"It’s {en}.") for de, en in toy.sentence_pairs(count, seed)]


def files() -> dict[str, str]:
    """Names and text of all files of the release."""
    training = [*pairs(PAIRS, 1), ("", "nothing"), ("Ein Wort", "one " * 176), ("kurz", "far too long for it")]
    found = {
        f"train.tags.de-en.{language}": tags([pair[side] for pair in training])
        for side, language in enumerate(("de", "en"))
    }
    for seed, name in enumerate(TEST_SETS, start=2):
        for side, language in enumerate(("de", "en")):
            lines = [pair[side] for pair in pairs(SEGMENTS, seed)]
            found[f"IWSLT14.{name}.de-en.{language}.xml"] = xml(language, name, lines)
    return found


def write_archive(path: Path, release: dict[str, str] | None = None) -> None:
    """Write de-en.tgz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (files() if release is None else release).items():
            member = tarfile.TarInfo(f"de-en/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
