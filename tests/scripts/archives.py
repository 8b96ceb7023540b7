"""Small archives with the layout of the published ones, for ``SMOKE=1``.

:func:`write_archives` writes the archives that the preparation script of a corpus downloads, with the same names and
files, so the script runs unchanged with ``ARCHIVE_DIR``. The text is always the demo's German-English corpus.
``fairseq-deep reproduce --smoke`` calls it in a checkout.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from html import escape
from pathlib import Path

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_plugins.demo.corpus import pairs
from fairseq_plugins.errors import UserError, unknown_name

Files = dict[str, bytes]
"""Content by path inside an archive."""


@dataclass(frozen=True)
class Sentences:
    """Sentence pairs of one part of a corpus, by language."""

    german: Sequence[str]
    english: Sequence[str]

    def of(self, language: str) -> Sequence[str]:
        """The side used for ``language``: English for ``en``, German for any other."""
        return self.english if language == "en" else self.german


class Source:
    """The embedded corpus, split into disjoint parts."""

    def __init__(self, seed: int = 1) -> None:
        self._pairs = pairs(seed)

    def take(self, count: int) -> Sentences:
        """The next ``count`` sentence pairs."""
        drawn = [next(self._pairs) for _ in range(count)]
        return Sentences([pair.german for pair in drawn], [pair.english for pair in drawn])


def _lines(sentences: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in sentences).encode()


# --- markup -----------------------------------------------------------------------------------------------------------


def ted_training(sentences: Sequence[str], language: str) -> bytes:
    """Training talks of IWSLT: lines of text between lines of markup about each talk."""
    talk = 20
    text: list[str] = []
    for first in range(0, len(sentences), talk):
        number = first // talk + 1
        text += [
            f"<url>http://www.ted.com/talks/talk_{number}.html</url>",
            "<keywords>talks, example</keywords>",
            "<speaker>Somebody</speaker>",
            f"<talkid>{number}</talkid>",
            f"<title>Talk {number}</title>",
            f"<description>TED Talk Subtitles ({language}): talk {number}.</description>",
        ]
        text += [f" {escape(line, quote=False)} " for line in sentences[first : first + talk]]
        text += [
            f'<reviewer href="http://www.ted.com/{number}">Somebody</reviewer>',
            f'<translator href="http://www.ted.com/{number}">Somebody else</translator>',
        ]
    return _lines(text)


def ted_evaluation(sentences: Sequence[str], language: str, name: str) -> bytes:
    """Development and test talks of IWSLT: XML with a ``<seg>`` for each sentence."""
    kind = "refset" if language == "en" else "srcset"
    text = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<mteval>",
        f'<{kind} setid="{name}" srclang="german">',
        '<doc docid="1" genre="lectures">',
        "<title>A talk</title>",
        "<keywords>talks</keywords>",
    ]
    text += [f'<seg id="{number}"> {escape(line, quote=False)} </seg>' for number, line in enumerate(sentences, 1)]
    return _lines([*text, "</doc>", f"</{kind}>", "</mteval>"])


def newstest(sentences: Sequence[str], language: str, name: str, kind: str) -> bytes:
    """A test set of WMT in SGML: ``kind`` is ``src`` or ``ref``."""
    attribute = f' trglang="{language}"' if kind == "ref" else ""
    text = [f'<{kind}set setid="{name}" srclang="any"{attribute}>', f'<doc sysid="{kind}" docid="doc-1" origlang="en">']
    text += [f'<seg id="{number}">{escape(line, quote=False)}</seg>' for number, line in enumerate(sentences, 1)]
    return _lines([*text, "</doc>", f"</{kind}set>"])


# --- the corpora ------------------------------------------------------------------------------------------------------


def iwslt14_de_en(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """The archive of IWSLT'14 German-English."""
    languages, files = ("de", "en"), Files()
    train = source.take(count)
    for language in languages:
        files[f"de-en/train.tags.de-en.{language}"] = ted_training(train.of(language), language)
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
        part = source.take(max(4, count // 100))
        for language in languages:
            files[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = ted_evaluation(part.of(language), language, name)
    yield "de-en.tgz", files


_NEWSTESTS = {
    "2010": ("wmt10-test.tgz", "test/newstest2010-src", "test/newstest2010-src"),
    "2011": ("wmt11-test.tgz", "newstest2011-src", "newstest2011-src"),
    "2012": ("wmt12-test.tgz", "test/newstest2012-src", "test/newstest2012-src"),
    "2013": ("wmt13-test.tgz", "test/newstest2013-src", "test/newstest2013-src"),
    "2014": ("wmt14-test-full.tgz", "test-full/newstest2014-{pair}-src", "test-full/newstest2014-{pair}-ref"),
    "2015": ("wmt15-test.tgz", "test/newstest2015-ende-src", "test/newstest2015-ende-ref"),
    "2016": ("wmt16-test.tgz", "test/newstest2016-ende-src", "test/newstest2016-ende-ref"),
    "2014-filtered": ("wmt14-test-filtered.tgz", "test/newstest2014-{pair}-src", "test/newstest2014-{pair}-ref"),
    "2017": ("wmt17-test.tgz", "test/newstest2017-{way}-src", "test/newstest2017-{way}-ref"),
    "2018": ("wmt18-test.tgz", "test/newstest2018-{way}-src", "test/newstest2018-{way}-ref"),
}
"""Archive of each test set of WMT, and its SGML files of source and reference without language and ending."""


def _newstests(source: Source, languages: tuple[str, str], count: int) -> Iterator[tuple[str, Files]]:
    pair = languages[1] + languages[0]
    for year, (archive, *names) in _NEWSTESTS.items():
        part, files = source.take(count), Files()
        for language, name, kind in zip(languages, names, ("src", "ref"), strict=True):
            member = f"{name.format(pair=pair, way=''.join(languages))}.{language}.sgm"
            files[member] = newstest(part.of(language), language, f"newstest{year}", kind)
        yield archive, files


def _training_texts(
    source: Source, languages: tuple[str, str], count: int, places: Mapping[str, str]
) -> Iterator[tuple[str, Files]]:
    """Parts of ``count`` sentences, each in its archive under its name in ``places``."""
    for archive, name in places.items():
        part = source.take(max(8, count // len(places)))
        yield archive, {f"{name}.{language}": _lines(part.of(language)) for language in languages}


def wmt14_en_de(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """The archives of WMT'14 English-German, and News Commentary 11 and 12 for the other variants."""
    languages = ("en", "de")
    places = {
        "training-parallel-europarl-v7.tgz": "training/europarl-v7.de-en",
        "training-parallel-commoncrawl.tgz": "commoncrawl.de-en",
        "training-parallel-nc-v9.tgz": "training/news-commentary-v9.de-en",
        "training-parallel-nc-v12.tgz": "training/news-commentary-v12.de-en",
        "training-parallel-nc-v11.tgz": "training-parallel-nc-v11/news-commentary-v11.de-en",
    }
    yield from _training_texts(source, languages, count, places)
    yield from _newstests(source, languages, max(8, count // 40))


def wmt14_en_fr(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """The archives of WMT'14 English-French; as published, the files of one text are gzipped inside their archive."""
    languages = ("en", "fr")
    places = {
        "training-parallel-europarl-v7.tgz": "training/europarl-v7.fr-en",
        "training-parallel-commoncrawl.tgz": "commoncrawl.fr-en",
        "training-parallel-un.tgz": "un/undoc.2000.fr-en",
        "training-parallel-nc-v9.tgz": "training/news-commentary-v9.fr-en",
    }
    yield from _training_texts(source, languages, count, places)
    giga = source.take(max(8, count // 4))
    name = "giga-fren.release2.fixed"
    yield (
        "training-giga-fren.tar",
        {f"{name}.{language}.gz": gzip.compress(_lines(giga.of(language)), mtime=0) for language in languages},
    )
    for archive, files in _newstests(source, languages, max(8, count // 40)):
        if archive.startswith(("wmt10", "wmt11", "wmt12", "wmt13", "wmt14")):
            yield archive, files


def wmt16_en_de(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """Google's WMT'16 English-German, tokenised and in subwords."""
    merges, files = 400, Files()
    train = source.take(count)
    tokenised = {language: [_tokens(line) for line in train.of(language)] for language in ("en", "de")}
    codes = io.StringIO()
    with redirect_stderr(io.StringIO()):
        learn_bpe([*tokenised["en"], *tokenised["de"]], codes, merges)
    subwords = BPE(io.StringIO(codes.getvalue()))
    files["bpe.32000"] = codes.getvalue().encode()
    for language, lines in tokenised.items():
        files[f"train.tok.clean.bpe.32000.{language}"] = _lines([subwords.process_line(line) for line in lines])
    for year in _NEWSTESTS:
        part = source.take(max(8, count // 40))
        for language in ("en", "de"):
            lines = [_tokens(line) for line in part.of(language)]
            files[f"newstest{year}.{language}"] = _lines(part.of(language))
            files[f"newstest{year}.tok.{language}"] = _lines(lines)
            files[f"newstest{year}.tok.bpe.32000.{language}"] = _lines([subwords.process_line(line) for line in lines])
    yield "wmt16_en_de.tar.gz", files


def _wmt18(source: Source, count: int, languages: tuple[str, str], pair: str) -> Iterator[tuple[str, Files]]:
    """The tokenised training text of WMT'18 in two columns, and the test sets."""
    columns = zip(*(map(_tokens, part) for part in map(source.take(count).of, pair.split("-"))), strict=True)
    yield f"wmt18-{pair}-corpus.gz", {"corpus": _lines(["\t".join(column) for column in columns])}
    for archive, files in _newstests(source, languages, max(8, count // 40)):
        if archive.startswith(("wmt17", "wmt18")):
            yield archive, files


def wmt18_en_fi(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """The archives of WMT'18 English-Finnish."""
    return _wmt18(source, count, ("en", "fi"), "fi-en")


def wmt18_zh_en(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """The archives of WMT'18 Chinese-English."""
    return _wmt18(source, count, ("zh", "en"), "zh-en")


def _tokens(line: str) -> str:
    """A tokeniser that suffices for this text: split off punctuation."""
    return re.sub(r" +", " ", re.sub(r"([.,?!])", r" \1 ", line)).strip()


def enwik8(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """The first bytes of a made-up encyclopedia."""
    yield "enwik8.zip", {"enwik8": _lines(source.take(count).german)}


def wikitext103(source: Source, count: int) -> Iterator[tuple[str, Files]]:
    """Articles with headings, tokenised."""
    files = Files()
    for split, share in (("train", 1), ("valid", 10), ("test", 10)):
        text = [" " + _tokens(line) + " " for line in source.take(max(20, count // share)).english]
        files[f"wikitext-103/wiki.{split}.tokens"] = _lines([" ", " = An article = ", " ", *text])
    yield "wikitext-103-v1.zip", files


CORPORA: Mapping[str, Callable[[Source, int], Iterator[tuple[str, Files]]]] = {
    "iwslt14_de_en": iwslt14_de_en,
    "wmt14_en_de": wmt14_en_de,
    "wmt14_en_fr": wmt14_en_fr,
    "wmt16_en_de": wmt16_en_de,
    "wmt18_en_fi": wmt18_en_fi,
    "wmt18_zh_en": wmt18_zh_en,
    "enwik8": enwik8,
    "wikitext103": wikitext103,
}


# --- the files --------------------------------------------------------------------------------------------------------


def write_archive(path: Path, files: Files) -> None:
    """Write ``files`` as a tar, a zip or a compressed file, by the suffix; equal content gives equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    if path.suffix == ".zip":
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as pack:
            for name, content in files.items():
                pack.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    elif path.suffix == ".gz" and not path.name.endswith(".tar.gz"):
        [content] = files.values()
        partial.write_bytes(gzip.compress(content, mtime=0))
    else:
        _write_tar(partial, files, compressed=path.suffix != ".tar")
    os.replace(partial, path)


def _write_tar(path: Path, files: Files, *, compressed: bool) -> None:
    with open(path, "wb") as raw:
        # gzip would otherwise write a name and a time into the file.
        stream = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if compressed else raw
        with tarfile.open(fileobj=stream, mode="w") as pack:  # type: ignore[arg-type]
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                pack.addfile(entry, io.BytesIO(content))
        if compressed:
            stream.close()


def write_archives(corpus: str, directory: Path, count: int = 400) -> list[Path]:
    """Write the archives of ``corpus`` with ``count`` training sentences; return their paths.

    Raises:
        UserError: the corpus is unknown.
    """
    if corpus not in CORPORA:
        raise UserError(unknown_name("corpus", corpus, CORPORA))
    written = []
    for name, files in CORPORA[corpus](Source(), count):
        write_archive(directory / name, files)
        written.append(directory / name)
    return written
