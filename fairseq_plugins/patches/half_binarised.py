"""``fairseq-preprocess`` leaves incomplete files under their final names if it is stopped or the disk is full.

The next run then ends in a FileExistsError, or a training reads an incomplete dictionary. Here everything is written to
a directory inside ``--destdir`` and moved to its place when it is whole, the dictionaries last.
https://github.com/facebookresearch/fairseq/issues/4144
"""

from __future__ import annotations

import logging
import os
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairseq_cli import preprocess

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap

UNFINISHED = "preprocess.partial"
LOG = "preprocess.log"


def refuse_finished(args: Namespace) -> None:
    """Protect the dictionaries of an existing data set.

    Raises:
        UserError: there is a dictionary and none is given.
    """
    given = {args.source_lang: args.srcdict}
    if not args.only_source:
        given[args.target_lang] = args.tgtdict
    for language, dictionary in given.items():
        present = Path(preprocess._dict_path(language, args.destdir))
        if not dictionary and present.exists():
            raise UserError(
                f"--destdir {args.destdir} already holds {present.name}: use another --destdir, remove the directory, "
                "or keep its dictionaries with --srcdict and --tgtdict"
            )


class Renamed(logging.Filter):
    """Makes fairseq's log name the final directory, not the temporary one."""

    def __init__(self, unfinished: Path, destination: Path) -> None:
        super().__init__()
        self.names = str(unfinished), str(destination)

    def filter(self, record: logging.LogRecord) -> bool:
        """Accept every record, with the right name."""
        record.msg, record.args = record.getMessage().replace(*self.names), ()
        return True


@contextmanager
def logged_as(unfinished: Path, destination: Path) -> Iterator[None]:
    """Make fairseq's logger name ``destination``, and close the log file that fairseq leaves open."""
    renamed, before = Renamed(unfinished, destination), list(preprocess.logger.handlers)
    preprocess.logger.addFilter(renamed)
    try:
        yield
    finally:
        preprocess.logger.removeFilter(renamed)
        for handler in set(preprocess.logger.handlers).difference(before):
            preprocess.logger.removeHandler(handler)
            handler.close()


def publish(unfinished: Path, destination: Path) -> None:
    """Move everything to its place: the log is appended to an earlier one, and the dictionaries come last."""
    log = unfinished / LOG
    with (destination / LOG).open("ab") as whole:
        whole.write(log.read_bytes())
    log.unlink()
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name.startswith("dict.")):
        os.replace(path, destination / path.name)
    unfinished.rmdir()


@contextmanager
def staged(destination: Path) -> Iterator[Path]:
    """Yield a directory whose content is moved to ``destination`` at the end; after an error nothing remains.

    Raises:
        UserError: it cannot be written.
    """
    unfinished, new = destination / UNFINISHED, not destination.exists()
    try:
        # Left by a killed run, and incomplete.
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        yield unfinished
        publish(unfinished, destination)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if new:
            with suppress(OSError):
                destination.rmdir()
        if isinstance(error, OSError) and str(error.filename or destination).startswith(str(destination)):
            raise UserError(f"--destdir {destination}: {error.strerror}; nothing was written") from error
        raise


def whole_or_nothing(main: Callable[..., Any], args: Namespace) -> None:
    """``fairseq-preprocess`` that finishes or leaves nothing behind.

    Raises:
        UserError: the directory cannot be written or is finished already, or fairseq refuses the options.
    """
    refuse_finished(args)
    destination = Path(args.destdir)
    with staged(destination) as unfinished, logged_as(unfinished, destination):
        try:
            main(Namespace(**{**vars(args), "destdir": str(unfinished)}))
        except AssertionError as refused:
            if not str(refused):
                raise
            raise UserError(str(refused)) from refused


def apply() -> None:
    """Wrap the command, which fairseq looks up after the plugin is loaded."""
    wrap(preprocess, "main", whole_or_nothing, order=20)
