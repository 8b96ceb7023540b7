"""``fairseq-preprocess`` accepts any text, and the training fails.

An empty file, sides of unequal length, another encoding, a carriage return inside a line and a forgotten language all
end in a stack trace, many minutes later or in another command, or in pairs of sentences that do not belong together.
Here everything is read before anything is written. https://github.com/facebookresearch/fairseq/issues/3571 and
https://github.com/facebookresearch/fairseq/issues/4101
"""

from __future__ import annotations

from argparse import Namespace
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq import tasks
from fairseq_cli import preprocess

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import raw_lines, read_lines
from fairseq_plugins.patches.wrapping import wrap
from fairseq_plugins.text.parallel import check


def check_options(args: Namespace) -> None:
    """Check that the options are complete.

    Raises:
        UserError: a language or the text is missing, or a number is too small.
    """
    if not args.only_source and not (args.source_lang and args.target_lang):
        raise UserError("--source-lang and --target-lang are required, or --only-source for text in one language")
    if not (args.trainpref or args.srcdict or (args.joined_dictionary and args.tgtdict)):
        raise UserError("--trainpref is required to make a dictionary from, or --srcdict with an existing one")
    if not (args.trainpref or args.only_source or args.joined_dictionary or args.tgtdict):
        raise UserError("--trainpref is required to make a dictionary from, or --tgtdict with an existing one")
    if args.workers < 1:
        raise UserError(f"--workers {args.workers}: must be at least 1")


def sides(args: Namespace, prefix: str) -> list[Path]:
    """Return the files of a prefix, as fairseq names them."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    return [Path(f"{prefix}.{language}" if language else prefix) for language in languages]


def prefixes(args: Namespace) -> Iterator[str]:
    """Yield the prefix of every set of texts, the training set first."""
    if args.trainpref:
        yield args.trainpref
    for several in (args.validpref, args.testpref):
        yield from several.split(",") if several else ()


def refuse_other_readings(path: Path) -> None:
    """Refuse what fairseq reads otherwise than this package, in a file with one sentence per line.

    Raises:
        UserError: there is a carriage return that is not followed by a line feed, or a byte order mark.
    """
    for number, line in enumerate(raw_lines(path), start=1):
        if number == 1 and line.startswith(BOM_UTF8):
            raise UserError(
                f"{path}: line 1: begins with a byte order mark, which fairseq would read as a part of the first word; "
                "remove it"
            )
        if b"\r" in line and b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
            raise UserError(
                f"{path}: line {number}: carriage return inside the line, where fairseq would split it; remove it, or "
                "replace it with a space"
            )


def check_dictionaries(args: Namespace) -> None:
    """Read the dictionaries that are given.

    Raises:
        UserError: one is absent or empty, or has a line that is not a word and its count.
    """
    for path in (args.srcdict, None if args.only_source else args.tgtdict):
        if path:
            next(read_lines(Path(path)))
            tasks.get_task(args.task).load_dictionary(path)


def check_text(args: Namespace) -> None:
    """Read every text.

    Raises:
        UserError: a file is absent, empty, not UTF-8, or has another number of lines than the other side.
    """
    if args.dict_only:
        read = [[path] for path in (sides(args, args.trainpref) if args.trainpref else [])]
    else:
        read = [sides(args, prefix) for prefix in prefixes(args)]
    for files in read:
        check(files)
        for path in files:
            refuse_other_readings(path)


def check_first(main: Callable[..., Any], args: Namespace) -> Any:
    """``fairseq-preprocess`` after a check of everything that it will read.

    Raises:
        UserError: the text cannot become a data set.
    """
    check_options(args)
    check_dictionaries(args)
    check_text(args)
    return main(args)


def apply() -> None:
    """Wrap the command, which fairseq looks up after the plugin is loaded."""
    wrap(preprocess, "main", check_first, order=10)
