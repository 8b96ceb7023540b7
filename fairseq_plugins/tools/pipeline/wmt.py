"""``fairseq-deep wmt``: download and unpack training texts and test sets of WMT by their names.

``wmt.tsv`` lists the archives and the files in them. sacreBLEU's own test sets are not used: it replaces double spaces
of the published text by single ones.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.tools.pipeline import download
from fairseq_plugins.tools.pipeline.commands import interruptible
from fairseq_plugins.tools.pipeline.workspace import Workspace, say
from fairseq_plugins.tools.text import markup
from fairseq_plugins.tools.text.archives import unpack


@dataclass(frozen=True)
class WmtText:
    """One row of ``wmt.tsv``.

    Args:
        name: its name for users; a test set is a ``newstest``, in SGML.
        languages: its languages other than English, with spaces between them.
        archive: its path on the server.
        source, target: paths in the archive, without language and ending; ``{pair}`` is ``de-en``, ``{joined}`` is
            ``deen``, ``{direction}`` is ``ende`` of English to German.
    """

    name: str
    languages: str
    archive: str
    source: str
    target: str


@cache
def texts() -> Mapping[str, WmtText]:
    """All rows, by name."""
    with open(Path(__file__).with_name("wmt.tsv"), encoding="utf-8", newline="") as stream:
        return {row["name"]: WmtText(**row) for row in csv.DictReader(stream, delimiter="\t")}


def get(text: WmtText, source: str, target: str, directory: Path) -> None:
    """Download and unpack a training text as it is, or a test set as ``test/NAME.LANGUAGE``; or a UserError."""
    make = Workspace(directory).make
    pair = f"{target if source == 'en' else source}-en"
    forms = {"pair": pair, "joined": pair.replace("-", ""), "direction": f"{source}{target}"}
    members = {source: f"{text.source.format(**forms)}.{source}", target: f"{text.target.format(**forms)}.{target}"}
    is_test_set = text.name.startswith("newstest")
    server, _, archive = text.archive.rpartition("/")
    if is_test_set:
        # Every workshop calls its archive test.tgz.
        archive = f"{server.partition('/')[0]}-{archive}"
    place = directory / archive.removesuffix(".tgz").removesuffix(".tar")
    if not place.exists():
        # Workshops until 2015 are on one server, later ones on another.
        host = "data.statmt.org" if "/" in server else "www.statmt.org"
        downloaded = download.get(archive, [f"{scheme}://{host}/{text.archive}" for scheme in ("https", "http")])
        only = [f"*{member}{'.sgm' if is_test_set else '*'}" for member in members.values()]
        make(place, lambda output: say(unpack(downloaded, output, only=only)))
    if is_test_set:
        for language, member in members.items():
            extract = partial(markup.extract_ted, [place / f"{member}.sgm"], kind="xml")  # the same elements
            make(directory / "test" / f"{text.name}.{language}", extract)


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep wmt --pair SOURCE-TARGET --to DIR NAME ...``."""
    flags = OneLineParser(
        prog="fairseq-deep wmt",
        description="Download training texts and test sets of WMT by their names. DIR gets the training texts as in "
        "their archives, and the test sets as DIR/test/NAME.LANGUAGE, one sentence per line, otherwise as published. "
        "CACHE, ARCHIVE_DIR and CHECKSUMS in the environment have the same meaning as for fairseq-deep download.",
    )
    flags.add_argument("names", nargs="+", metavar="NAME", help=f"one of {', '.join(texts())}")
    pair = "translation direction, such as en-de; one language must be English"
    flags.add_argument("--pair", required=True, metavar="SOURCE-TARGET", help=pair)
    flags.add_argument("--to", required=True, type=Path, metavar="DIR", help="output directory")
    args = flags.read(argv)
    source, _, target = args.pair.partition("-")
    if "en" not in (source, target) or source == target:
        raise UserError(f"--pair {args.pair}: must be two languages, one of them en, for example en-de")
    for name in args.names:
        if name not in texts():
            raise UserError(unknown_name("text of WMT", name, texts()))
        if not {source, target} & set(texts()[name].languages.split()):
            raise UserError(f"{name}: not available for {args.pair}; available with en: {texts()[name].languages}")
    # Files of another pair have the same names.
    with interruptible(), Workspace(args.to).claimed([("pair", args.pair)]):
        for name in dict.fromkeys(args.names):
            get(texts()[name], source, target, args.to)
    return 0
