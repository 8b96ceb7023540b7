"""``fairseq-preprocess`` accepts any text, and the training fails.

An empty file, sides of unequal length, another encoding, a carriage return inside a line and a forgotten language all
end in a stack trace, many minutes later or in another command, or in pairs of sentences that do not belong together.
Here everything is read before anything is written. https://github.com/facebookresearch/fairseq/issues/3571 and
https://github.com/facebookresearch/fairseq/issues/4101
"""

from argparse import Namespace
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import tasks
from fairseq_cli import preprocess

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import OVERWRITE, check_files, raw_lines, read_lines


def check_options(args: Namespace) -> None:
    """Raise a UserError if a language or the text is missing, or a number is too small."""
    if not args.only_source and not (args.source_lang and args.target_lang):
        raise UserError("--source-lang and --target-lang are required, or --only-source for text in one language")
    joined = args.joined_dictionary and (args.srcdict or args.tgtdict)
    if not (args.trainpref or joined or (args.srcdict and (args.only_source or args.tgtdict))):
        raise UserError("--trainpref is required to make dictionaries from, or existing ones (--srcdict, --tgtdict)")
    if args.workers < 1:
        raise UserError(f"--workers {args.workers}: must be at least 1")


def texts(args: Namespace) -> list[list[Path]]:
    """Return the files of each set of texts as fairseq names them; for a dictionary alone they need not be parallel."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    others = [] if args.dict_only else [prefixes for prefixes in (args.validpref, args.testpref) if prefixes]
    prefixes = [args.trainpref] if args.trainpref else []
    prefixes += [prefix for several in others for prefix in several.split(",")]
    sets = [[Path(f"{prefix}.{language}" if language else prefix) for language in languages] for prefix in prefixes]
    return [[path] for files in sets for path in files] if args.dict_only else sets


def refuse_other_readings(path: Path) -> None:
    """Raise a UserError for a byte order mark, or a carriage return inside of a line, which fairseq reads otherwise."""
    for number, line in enumerate(raw_lines(path), start=1):
        if number == 1 and line.startswith(BOM_UTF8):
            raise UserError(f"{path}: line 1: begins with a byte order mark, a part of fairseq's first word; remove it")
        if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
            raise UserError(
                f"{path}: line {number}: carriage return inside the line, where fairseq would split it; remove it, or "
                "replace it with a space"
            )


def check_first(main: Callable[..., Any], args: Namespace) -> Any:
    """``fairseq-preprocess`` after a check of everything that it will read; a UserError names the first fault."""
    check_options(args)
    for dictionary in (args.srcdict, None if args.only_source else args.tgtdict):
        if dictionary:
            next(read_lines(Path(dictionary)))
            words = tasks.get_task(args.task).load_dictionary(dictionary)
            if len(words.indices) < len(words):
                # The copy of a dictionary, which a training reads, says nothing of it.
                raise UserError(f"{dictionary}: a word that ends in{OVERWRITE} is there twice; remove the earlier line")
    for files in texts(args):
        check_files(files)
        for path in files:
            refuse_other_readings(path)
    return main(args)


WRAPPED = ((preprocess, "main", check_first, 10),)
