"""``fairseq-preprocess`` accepts any text, and the training fails.

An empty file, sides of unequal length, another encoding, a carriage return inside a line and a forgotten language all
end in a stack trace, many minutes later or in another command, or in pairs of sentences that do not belong together.
Here everything is read before anything is written. https://github.com/facebookresearch/fairseq/issues/3571 and
https://github.com/facebookresearch/fairseq/issues/4101
"""

from __future__ import annotations

import re
from argparse import Namespace
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq import tasks
from fairseq_cli import preprocess

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import in_step, raw_lines, read_lines
from fairseq_plugins.patches.wrapping import wrap
from fairseq_plugins.text.parallel import check

LINKS = re.compile(r"(\d+)-(\d+)")


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


def check_links(path: Path, texts: Sequence[Path]) -> None:
    """Read word alignments: a line of pairs ``i-j`` for each pair of sentences, counted from 0.

    Raises:
        UserError: as :func:`check_text`, or a pair is malformed or points past the end of a sentence.
    """
    for number, (line, *sentences) in enumerate(in_step([path, *texts]), start=1):
        lengths = [len(sentence.split()) for sentence in sentences]
        for pair in line.split():
            found = LINKS.fullmatch(pair)
            if not found:
                raise UserError(f"{path}: line {number}: '{pair}' is not a pair of positions such as 0-2")
            if any(int(place) >= length for place, length in zip(found.groups(), lengths, strict=True)):
                raise UserError(f"{path}: line {number}: '{pair}' points past the end of a sentence")


def alignments(args: Namespace) -> Iterator[tuple[Path, str]]:
    """Yield every file of alignments, and the prefix of its texts.

    Raises:
        UserError: there is no text to align, or no file with the suffix.
    """
    if args.only_source:
        raise UserError("--alignfile and --align-suffix align two languages and cannot be combined with --only-source")
    if args.alignfile and not args.trainpref:
        raise UserError("--alignfile aligns the text of --trainpref, which is not given")
    if args.alignfile:
        yield Path(args.alignfile), args.trainpref
    if args.align_suffix:
        files = {Path(f"{prefix}.{args.align_suffix}"): prefix for prefix in prefixes(args)}
        if not any(path.exists() for path in files):
            raise UserError(f"--align-suffix {args.align_suffix}: no such file: {', '.join(map(str, files))}")
        yield from ((path, prefix) for path, prefix in files.items() if path.exists())


def check_alignments(args: Namespace) -> None:
    """Read the files of ``--alignfile`` and ``--align-suffix``.

    Raises:
        UserError: as :func:`alignments` and :func:`check_links`.
    """
    if not args.dict_only and (args.alignfile or args.align_suffix):
        for path, prefix in alignments(args):
            check_links(path, sides(args, prefix))


def check_first(main: Callable[..., Any], args: Namespace) -> Any:
    """``fairseq-preprocess`` after a check of everything that it will read.

    Raises:
        UserError: the text cannot become a data set.
    """
    check_options(args)
    check_dictionaries(args)
    check_text(args)
    check_alignments(args)
    return main(args)


def apply() -> None:
    """Wrap the command, which fairseq looks up after the plugin is loaded."""
    wrap(preprocess, "main", check_first, order=10)
