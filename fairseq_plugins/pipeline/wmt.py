"""``fairseq-deep wmt``: download, unpack and count training texts and test sets of WMT by their names.

``wmt.tsv`` lists the archives, the files in them, and published line counts (English-French: tensorflow/lingvo; News
Commentary 12: a published log of fairseq's script; test sets: sacreBLEU). Lines are only checked for archives with a
known checksum.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import write_whole
from fairseq_plugins.lines import raw_lines
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.pipeline.commands import Commands, interruptible
from fairseq_plugins.pipeline.download import Downloads, chosen
from fairseq_plugins.pipeline.workspace import Workspace, say
from fairseq_plugins.text import sgm
from fairseq_plugins.text.archives import unpack_known


@dataclass(frozen=True)
class Text:
    """One row of ``wmt.tsv``.

    Args:
        name: its name for users; a test set is a ``newstest``.
        languages: its languages besides English, with spaces between them.
        archive: its path on the server.
        source, target: paths in the archive, without language and ending; ``{pair}`` is ``de-en``, ``{joined}`` is
            ``deen``, ``{direction}`` is ``ende`` of English to German.
        lines: ``PAIR=COUNT`` with spaces between them; if the text depends on the direction, only of that direction.
    """

    name: str
    languages: str
    archive: str
    source: str
    target: str
    lines: str

    @property
    def is_test_set(self) -> bool:
        """Whether it is in SGML."""
        return self.name.startswith("newstest")


@cache
def texts() -> Mapping[str, Text]:
    """All rows, by name."""
    with open(Path(__file__).with_name("wmt.tsv"), encoding="utf-8", newline="") as stream:
        return {row["name"]: Text(**row) for row in csv.DictReader(stream, delimiter="\t")}


def addresses(path: str) -> list[str]:
    """URL of an archive: workshops until 2015 are on one server, later ones on another."""
    if "/translation-task/" in path:
        return [f"https://data.statmt.org/{path}", f"http://data.statmt.org/{path}"]
    return [f"https://www.statmt.org/{path}", f"https://statmt.org/{path}", f"http://www.statmt.org/{path}"]


class Texts:
    """The texts of one translation direction, below one directory.

    Args:
        directory: of the result: training texts as in their archives, test sets as ``test/NAME.LANGUAGE``.
        source, target: two languages, one of them English.
        downloads: source of the archives.
        dry_run: only print the commands.
    """

    def __init__(
        self, directory: Path, source: str, target: str, downloads: Downloads, *, dry_run: bool = False
    ) -> None:
        self.directory = directory
        self.languages = (source, target)
        other = target if source == "en" else source
        self.forms = {"pair": f"{other}-en", "joined": f"{other}en", "direction": f"{source}{target}"}
        self.downloads = downloads
        self.dry_run = dry_run
        self.commands = Commands(dry_run=dry_run)
        self.make = Workspace(directory, dry_run=dry_run).make

    def training_text(self, text: Text) -> None:
        """Both sides as in the archive.

        Raises:
            UserError: the download failed, is truncated, or has another number of lines.
        """
        member = text.source.format(**self.forms)
        archive = text.archive.rpartition("/")[2]
        directory = self.directory / archive.removesuffix(".tgz").removesuffix(".tar")
        members = [f"*{member.rpartition('/')[2]}.{language}*" for language in self.languages]
        self._unpack(directory, archive, members, addresses(text.archive))
        self._count(text, archive, directory / member, Path(f"{directory}.lines"))

    def test_set(self, text: Text) -> None:
        """Both sides, one sentence per line.

        Raises:
            UserError: as for :meth:`training_text`; or the two sides do not match.
        """
        source, target = self.languages
        server, _, file = text.archive.rpartition("/")
        # Every workshop calls its archive test.tgz.
        archive = f"{server.partition('/')[0]}-{file}"
        directory = self.directory / archive.removesuffix(".tgz")
        members = [
            f"{text.source.format(**self.forms)}.{source}.sgm",
            f"{text.target.format(**self.forms)}.{target}.sgm",
        ]
        self._unpack(directory, archive, [f"*{member}" for member in members], addresses(text.archive))
        test = self.directory / "test"
        for language, own, other in ((source, *members), (target, *reversed(members))):
            self.make(test / f"{text.name}.{language}", self._extracted(directory / own, directory / other))
        self._count(text, archive, test / text.name, test / f"{text.name}.lines")

    def _extracted(self, path: Path, other: Path) -> Callable[[Path], None]:
        return lambda output: self.commands.step(sgm.extract, path, output, like=other)

    def _unpack(self, directory: Path, archive: str, members: Sequence[str], urls: Sequence[str]) -> None:
        """Unpack the archive; without a download if the directory exists."""
        path = self.downloads.path(archive)
        if not directory.exists():
            self.downloads.get(archive, urls)
        self.make(directory, lambda output: self.commands.step(unpack_known, path, output, only=members))

    def _count(self, text: Text, archive: str, prefix: Path, output: Path) -> None:
        """Check the number of lines; text that is split at other characters than the line feed has more."""
        source, target = self.languages
        counts = dict(word.split("=") for word in text.lines.split())
        expected = counts.get(f"{source}-{target}", counts.get(self.forms["pair"]))

        def count(partial: Path) -> None:
            if expected is None or archive not in self.downloads.checksums:
                say(f"{text.name}: the line count of {archive} is unknown and not checked")
                write_whole(partial, "")
                return
            for language in self.languages:
                path = Path(f"{prefix}.{language}")
                path = path if path.exists() else Path(f"{path}.gz")
                found = sum(1 for _ in raw_lines(path))
                if found != int(expected):
                    raise UserError(f"{prefix}.{language}: {expected} lines expected, {found} found")
            write_whole(partial, f"{expected}\n")

        if not self.dry_run:
            self.make(output, count)


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep wmt --pair SOURCE-TARGET --to DIR NAME ...``."""
    flags = OneLineParser(
        prog="fairseq-deep wmt",
        description="Download training texts and test sets of WMT by their names. DIR gets the training texts as in "
        "their archives, and the test sets as DIR/test/NAME.LANGUAGE, one sentence per line, otherwise as published. "
        "CACHE, ARCHIVE_DIR and CHECKSUMS in the environment have the same meaning as for fairseq-deep download.",
    )
    flags.add_argument("names", nargs="+", metavar="NAME", help=f"one of {', '.join(texts())}")
    flags.add_argument(
        "--pair", required=True, metavar="SOURCE-TARGET", help="direction, for example en-de; one is English"
    )
    flags.add_argument("--to", required=True, type=Path, metavar="DIR")
    flags.add_argument("--dry-run", action="store_true", help="only print the commands")
    args = flags.read(argv)
    source, _, target = args.pair.partition("-")
    if "en" not in (source, target) or source == target:
        raise UserError(f"--pair {args.pair}: must be two languages, one of them en, for example en-de")
    for name in args.names:
        if name not in texts():
            raise UserError(unknown_name("text of WMT", name, texts()))
        if not {source, target} & set(texts()[name].languages.split()):
            raise UserError(f"{name}: not available for {args.pair}; available with en: {texts()[name].languages}")
    wanted = Texts(args.to, source, target, chosen(dry_run=args.dry_run), dry_run=args.dry_run)
    with interruptible(), Workspace(args.to, dry_run=args.dry_run).claimed():
        for text in (texts()[name] for name in dict.fromkeys(args.names)):
            (wanted.test_set if text.is_test_set else wanted.training_text)(text)
    return 0
