"""Truecasing with sacremoses: write the first word of a sentence as inside sentences, like Moses' truecaser."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from sacremoses import MosesDetruecaser, MosesTruecaser

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_file
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.workers import Transform, map_lines


def learn_truecaser(source: Path, output: Path) -> None:
    """Learn which words begin with a capital: how often each word of tokenised text occurs in which case.

    At the beginning of a sentence only words in lower case count, so the text may be truecased already. Moses also
    counts some capitals there as a tenth, which sacremoses cannot read.
    """
    truecaser = MosesTruecaser()
    casing: dict[str, Counter[str]] = defaultdict(Counter)
    for line in read_lines(source):
        for word, written, weight in truecaser.learn_truecase_weights(line.split(), possibly_use_first_token=True):
            if weight == 1:
                casing[word][written] += 1
    truecaser.model = {"casing": casing}
    with whole_file(output) as partial:
        truecaser.save_model(str(partial))


def truecaser_of(model: Path) -> Transform:
    """The function that truecases a line of tokens.

    Raises:
        UserError: ``model`` is missing or not a truecaser model.
    """
    try:
        truecase = MosesTruecaser(load_from=str(model)).truecase
    except OSError as error:
        raise UserError(f"{model}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise UserError(f"{model}: not a model of Moses' truecaser") from None
    return lambda line: str(truecase(line, return_str=True, use_known=True))


def recaser() -> Transform:
    """The function that restores the capitals at the beginning of sentences in truecased tokens."""
    recase = MosesDetruecaser().detruecase
    return lambda line: str(recase(line, return_str=True))


def truecase(source: Path, output: Path, *, model: Path, workers: int = 1) -> None:
    """Write the first word of a sentence as inside sentences."""
    write_lines(output, map_lines(lambda: truecaser_of(model), read_lines(source), workers))
