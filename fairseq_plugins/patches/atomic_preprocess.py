"""``fairseq-preprocess`` leaves incomplete files under their final names if it is stopped or the disk is full.

The next run then ends in a FileExistsError, or a training reads an incomplete dictionary. Here everything is written to
a directory inside ``--destdir`` and moved to its place when it is whole, the dictionaries last. After Ctrl-C only the
main process says so: each worker of ``--workers`` would print a stack trace.
https://github.com/facebookresearch/fairseq/issues/4144
"""

import logging
import os
import shutil
import signal
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq import binarizer
from fairseq.data import dictionary
from fairseq_cli import preprocess

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import no_link
from fairseq_plugins.sums import add_sums

UNFINISHED = "preprocess.partial"
LOG = "preprocess.log"


def refuse_finished(args: Namespace) -> None:
    """Raise a UserError if a data set has a dictionary and none is given."""
    given = {args.source_lang: args.srcdict}
    if not args.only_source:
        given[args.target_lang] = args.tgtdict
    for language, words in given.items():
        present = Path(preprocess._dict_path(language, args.destdir))
        if not words and present.exists():
            raise UserError(
                f"--destdir {args.destdir} already holds {present.name}: use another --destdir, remove the directory, "
                "or keep its dictionaries with --srcdict and --tgtdict"
            )


def publish(unfinished: Path, destination: Path) -> None:
    """Move everything to its place behind its checksums: the log to an earlier one's end, and the dictionaries last."""
    log = unfinished / LOG
    with open(destination / LOG, "ab", opener=no_link) as whole:
        whole.write(log.read_bytes())
    log.unlink()
    add_sums(destination, {path.name: path for path in unfinished.iterdir()})
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name.startswith("dict.")):
        os.replace(path, destination / path.name)
    unfinished.rmdir()


def whole_or_nothing(main: Callable[..., Any], args: Namespace) -> None:
    """``fairseq-preprocess`` that finishes or leaves nothing behind; a UserError if the directory cannot be written."""
    refuse_finished(args)
    destination = Path(args.destdir)
    unfinished, new = destination / UNFINISHED, not destination.exists()
    handlers = list(preprocess.logger.handlers)

    def name_destination(record: logging.LogRecord) -> bool:
        record.msg, record.args = record.getMessage().replace(str(unfinished), str(destination)), ()
        return True

    preprocess.logger.addFilter(name_destination)
    try:
        # Left by a killed run, and incomplete.
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        main(Namespace(**{**vars(args), "destdir": str(unfinished)}))
        publish(unfinished, destination)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if new:
            with suppress(OSError):
                destination.rmdir()
        if isinstance(error, OSError) and str(error.filename or destination).startswith(str(destination)):
            raise UserError(f"--destdir {destination}: {error.strerror}; nothing was written") from error
        raise
    finally:
        preprocess.logger.removeFilter(name_destination)
        # fairseq leaves its log file open.
        for handler in set(preprocess.logger.handlers).difference(handlers):
            preprocess.logger.removeHandler(handler)
            with suppress(OSError):  # a full disk, which has been reported
                handler.close()


def quiet_pool(pool: Callable[..., Any], processes: int) -> Any:
    """``multiprocessing.Pool`` as fairseq calls it, with workers that ignore interrupts."""
    return pool(processes=processes, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))


WRAPPED = (
    (preprocess, "main", whole_or_nothing, 20),
    (dictionary, "Pool", quiet_pool),
    (binarizer, "Pool", quiet_pool),
)
