"""Small archives with the layout of the published ones; the text is made up here."""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping, Sequence

STEMS = ("ka", "lo", "mi", "su", "te", "ra", "no", "pi", "ve", "du")
PARTNERS = {"en": "", "de": "en", "fr": "ez"}


def sentences(count: int, language: str, seed: str) -> list[str]:
    """``count`` sentences; those of two languages with one seed translate each other, word by word."""
    generator = random.Random(seed)
    made = []
    for _ in range(count):
        words = ["".join(generator.choices(STEMS, k=generator.randint(1, 3))) for _ in range(generator.randint(4, 9))]
        made.append(" ".join(word + PARTNERS[language] for word in words).capitalize() + ".")
    return made


def lines(text: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in text).encode()


def sgm(text: Sequence[str], kind: str, per_document: int = 5) -> bytes:
    """A test set as WMT publishes it: documents, paragraphs, numbered segments; & and < stand as they are."""
    made = [f'<{kind}set setid="made" srclang="any" trglang="any">']
    for start in range(0, len(text), per_document):
        made.append(f'<doc sysid="{kind}" docid="paper.example/{start}" genre="news" origlang="en">\n<p>')
        document = text[start : start + per_document]
        made += [f'<seg id="{number}">{line}</seg>' for number, line in enumerate(document, start=1)]
        made.append("</p>\n</doc>")
    return lines([*made, f"</{kind}set>"])


def pair(member: str, text: Mapping[str, Sequence[str]]) -> dict[str, bytes]:
    """``member.<language>`` for each language."""
    return {f"{member}.{language}": lines(text[language]) for language in text}


def compressed(members: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in members.items()}
