"""Small archives with the layout of the published ones, for the tests of the preparations and of whole chains.

:func:`write_archives` writes the archives that the preparation script of a corpus downloads, with the same names and
files, so the script runs unchanged with ``ARCHIVE_DIR``. The text is always the demo's German-English corpus.
"""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import islice
from pathlib import Path

from fairseq_plugins.tools.demo.corpus import pairs

Files = dict[str, bytes]
"""Content by path inside an archive."""
Archives = dict[str, Files]
"""Files by the name of their archive."""


class Source:
    """Sentence pairs of the demo, each taken once."""

    def __init__(self) -> None:
        self._pairs = pairs(1)

    def take(self, count: int, *languages: str) -> dict[str, list[str]]:
        """The next ``count`` pairs: English for ``en``, German for any other language."""
        taken = list(islice(self._pairs, count))
        return {language: [pair[language == "en"] for pair in taken] for language in languages}


# --- forms of text ----------------------------------------------------------------------------------------------------


def lines(sentences: Iterable[str]) -> bytes:
    return "".join(f"{sentence}\n" for sentence in sentences).encode()


def parallel(member: str, text: Mapping[str, Sequence[str]]) -> Files:
    """``member.<language>`` for each language."""
    return {f"{member}.{language}": lines(sentences) for language, sentences in text.items()}


def sgm(sentences: Sequence[str], kind: str, per_document: int = 5) -> bytes:
    """A test set of WMT: documents, paragraphs, numbered segments; & and < stand as they are."""
    text = [f'<{kind}set setid="made" srclang="any" trglang="any">']
    for start in range(0, len(sentences), per_document):
        text.append(f'<doc sysid="{kind}" docid="paper.example/{start}" genre="news" origlang="en">\n<p>')
        document = sentences[start : start + per_document]
        text += [f'<seg id="{number}">{sentence}</seg>' for number, sentence in enumerate(document, start=1)]
        text.append("</p>\n</doc>")
    return lines([*text, f"</{kind}set>"])


def ted_talk(sentences: Sequence[str]) -> bytes:
    """Training text of IWSLT: lines of markup, then the text."""
    head = ["<url>http://www.ted.com/talks/1</url>", "<keywords>talks</keywords>", "<talkid>1</talkid>"]
    head += ["<title>Ein Talk</title>", "<description>TED Talk</description>"]
    return lines([*head, *sentences])


def ted_test_set(sentences: Sequence[str]) -> bytes:
    segments = [f'<seg id="{number}"> {escape(line, quote=False)} </seg>' for number, line in enumerate(sentences, 1)]
    head = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", '<srcset setid="made">', '<doc docid="1">']
    return lines([*head, "<title>A talk</title>", *segments, "</doc>", "</srcset>", "</mteval>"])


def tokens(sentence: str) -> str:
    """A tokeniser that suffices for this text: split off punctuation."""
    return re.sub(r" +", " ", re.sub(r"([.,?!])", r" \1 ", sentence)).strip()


def subwords(sentence: str) -> str:
    """Longer words in two pieces."""
    return re.sub(r"\b(\w\w)(\w{4,})", r"\1@@ \2", tokens(sentence))


# --- the corpora ------------------------------------------------------------------------------------------------------

TED_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
NEWSTESTS = {
    "2010": ("wmt10-test.tgz", "test/newstest2010-src", "test/newstest2010-src"),
    "2011": ("wmt11-test.tgz", "newstest2011-src", "newstest2011-src"),
    "2012": ("wmt12-test.tgz", "test/newstest2012-src", "test/newstest2012-src"),
    "2013": ("wmt13-test.tgz", "test/newstest2013-src", "test/newstest2013-src"),
    "2014": ("wmt14-test-full.tgz", "test-full/newstest2014-{pair}-src", "test-full/newstest2014-{pair}-ref"),
    "2014-filtered": ("wmt14-test-filtered.tgz", "test/newstest2014-{pair}-src", "test/newstest2014-{pair}-ref"),
    "2015": ("wmt15-test.tgz", "test/newstest2015-{way}-src", "test/newstest2015-{way}-ref"),
    "2016": ("wmt16-test.tgz", "test/newstest2016-{way}-src", "test/newstest2016-{way}-ref"),
    "2017": ("wmt17-test.tgz", "test/newstest2017-{way}-src", "test/newstest2017-{way}-ref"),
    "2018": ("wmt18-test.tgz", "test/newstest2018-{way}-src", "test/newstest2018-{way}-ref"),
}
"""Archive of the test sets of WMT, and its SGML files of source and reference without language and ending."""


def newstest(year: str, text: Mapping[str, Sequence[str]]) -> Archives:
    """The archive of a test set; ``text`` has the source, then the reference."""
    archive, *members = NEWSTESTS[year]
    source, target = text
    english, other = sorted(text, key=lambda language: language != "en")
    places = [member.format(pair=other + english, way=source + target) for member in members]
    kinds = zip(text, places, ("src", "ref"), strict=True)
    return {archive: {f"{place}.{language}.sgm": sgm(text[language], kind) for language, place, kind in kinds}}


WMT14_TEXTS = {
    "training-parallel-europarl-v7.tgz": "training/europarl-v7",
    "training-parallel-commoncrawl.tgz": "commoncrawl",
    "training-parallel-nc-v9.tgz": "training/news-commentary-v9",
    "training-parallel-nc-v11.tgz": "training-parallel-nc-v11/news-commentary-v11",
    "training-parallel-nc-v12.tgz": "training/news-commentary-v12",
    "training-parallel-un.tgz": "un/undoc.2000",
    "training-giga-fren.tar": "giga-fren.release2.fixed",
}


def wmt14_text(archive: str, text: Mapping[str, Sequence[str]]) -> Archives:
    """The archive of a training text; as published, the files of one are gzipped inside it, and have no languages."""
    other = next(language for language in text if language != "en")
    member = WMT14_TEXTS[archive] + ("" if "giga" in archive else f".{other}-en")
    files = parallel(member, text)
    if "giga" in archive:
        files = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}
    return {archive: files}


def iwslt14(source: Source, count: int) -> Archives:
    files = {f"de-en/train.tags.de-en.{end}": ted_talk(text) for end, text in source.take(count, "de", "en").items()}
    for name in TED_SETS:
        for end, text in source.take(max(4, count // 100), "de", "en").items():
            files[f"de-en/IWSLT14.{name}.de-en.{end}.xml"] = ted_test_set(text)
    return {"de-en.tgz": files}


def wmt14(source: Source, count: int, target: str) -> Archives:
    archives: Archives = {}
    for archive in WMT14_TEXTS:
        if target == "fr" or not archive.endswith(("un.tgz", ".tar")):
            archives |= wmt14_text(archive, source.take(max(8, count // 4), "en", target))
    for year in NEWSTESTS:
        archives |= newstest(year, source.take(max(8, count // 40), "en", target))
    return archives


def wmt16_google(source: Source, count: int) -> Archives:
    """Google's text, tokenised and in subwords."""

    def written(form: Callable[[str], str], text: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        return {language: [form(sentence) for sentence in text[language]] for language in text}

    train = source.take(count, "en", "de")
    files = {"bpe.32000": b"#version: 0.2\nk a</w>\n"} | parallel("train.tok.clean.bpe.32000", written(subwords, train))
    for year in NEWSTESTS:
        text = source.take(max(8, count // 40), "en", "de")
        for end, form in (("", str), (".tok", tokens), (".tok.bpe.32000", subwords)):
            files |= parallel(f"newstest{year}{end}", written(form, text))
    return {"wmt16_en_de.tar.gz": files}


def wmt18(source: Source, count: int, way: tuple[str, str], pair: tuple[str, str]) -> Archives:
    """The tokenised training text in two columns, and the test sets."""
    rows = zip(*source.take(count, *pair).values(), strict=True)
    text = lines("\t".join(map(tokens, row)) for row in rows)
    archives = {f"wmt18-{'-'.join(pair)}-corpus.gz": {"": text}}
    for year in ("2017", "2018"):
        archives |= newstest(year, source.take(max(8, count // 40), *way))
    return archives


def wikitext103(source: Source, count: int) -> Archives:
    """Articles with headings, tokenised."""
    files = {}
    for split, share in (("train", 1), ("valid", 10), ("test", 10)):
        text = [f" {tokens(line)} " for line in source.take(max(20, count // share), "en")["en"]]
        files[f"wikitext-103/wiki.{split}.tokens"] = lines([" ", " = An article = ", " ", *text])
    return {"wikitext-103-v1.zip": files}


CORPORA: Mapping[str, Callable[[Source, int], Archives]] = {
    "iwslt14_de_en": iwslt14,
    "wmt14_en_de": partial(wmt14, target="de"),
    "wmt14_en_fr": partial(wmt14, target="fr"),
    "wmt16_en_de": wmt16_google,
    "wmt18_en_fi": partial(wmt18, way=("en", "fi"), pair=("fi", "en")),
    "wmt18_zh_en": partial(wmt18, way=("zh", "en"), pair=("zh", "en")),
    "enwik8": lambda source, count: {"enwik8.zip": {"enwik8": lines(source.take(count, "de")["de"])}},
    "wikitext103": wikitext103,
}


# --- the files --------------------------------------------------------------------------------------------------------


def packed(archive: str, files: Files) -> bytes:
    """``files`` as a tar, a zip or a compressed file, by the archive's name; equal content gives equal bytes."""
    stream = io.BytesIO()
    if archive.endswith(".zip"):
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as pack:
            for name, content in files.items():
                pack.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        return stream.getvalue()
    if archive.endswith(".gz") and not archive.endswith(".tar.gz"):
        [content] = files.values()
        return gzip.compress(content, mtime=0)
    with tarfile.open(fileobj=stream, mode="w") as pack:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            pack.addfile(entry, io.BytesIO(content))
    compress = {".tar": bytes, ".bz2": bz2.compress, ".xz": lzma.compress}
    return compress.get(Path(archive).suffix, partial(gzip.compress, mtime=0))(stream.getvalue())


def write_archive(path: Path, files: Files) -> Path:
    """Write ``files`` in one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed(path.name, files))
    return path


def write_archives(corpus: str, directory: Path, count: int = 400) -> None:
    """Write the archives of ``corpus`` with ``count`` training sentences."""
    for name, files in CORPORA[corpus](Source(), count).items():
        write_archive(directory / name, files)
