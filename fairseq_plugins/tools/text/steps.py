"""Steps of Moses' tools on files: normalise, straighten, tokenise, detokenise, learn and use a truecaser."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from sacremoses import MosesTruecaser

from fairseq_plugins.errors import UserError, cause_of
from fairseq_plugins.files import whole_file
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.tools.text.moses import Transform, detokeniser, normaliser, recaser, tokeniser, truecaser
from fairseq_plugins.tools.text.words import straightened
from fairseq_plugins.tools.workers import map_lines


def normalise(inputs: Sequence[Path], output: Path, *, language: str, workers: int = 1) -> None:
    """Normalise punctuation; drop control characters."""
    write_lines(output, map_lines(lambda: normaliser(language), read_lines(*inputs), workers))


def straighten(source: Path, output: Path) -> None:
    """Replace ’ by ', as fairseq's preparations do with test sets."""
    write_lines(output, map(straightened, read_lines(source)))


def tokenise(
    inputs: Sequence[Path],
    output: Path,
    *,
    language: str,
    kind: Literal["moses", "none"] = "moses",
    normalise: bool = False,
    aggressive: bool = False,
    escape: bool = True,
    lower_case: bool = False,
    workers: int = 1,
) -> None:
    """Split words from punctuation as Moses does.

    Options:
        kind: none: the text is tokenised, and only gets single spaces
        normalise: normalise punctuation and drop control characters first
        aggressive: split words at hyphens
        escape: do not escape special characters, such as ' as &apos;
        lower_case: lower-case the text
    """
    make = partial(tokeniser, language, kind, normalise, aggressive, escape, lower_case)
    write_lines(output, map_lines(make, read_lines(*inputs), workers))


def detokenise(source: Path, output: Path, *, language: str, recase: bool = False, workers: int = 1) -> None:
    """Join words and punctuation again.

    Options:
        recase: the text is truecased: sentences begin with a capital
    """
    lines = map(recaser(), read_lines(source)) if recase else read_lines(source)
    write_lines(output, map_lines(lambda: detokeniser(language), lines, workers))


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
    """The function that truecases a line of tokens; a UserError if ``model`` is no truecaser model."""
    try:
        return truecaser(str(model))
    except OSError as error:
        raise UserError(f"{model}: {cause_of(error)}") from None
    except ValueError:
        raise UserError(f"{model}: not a model of Moses' truecaser") from None


def truecase(source: Path, output: Path, *, model: Path, workers: int = 1) -> None:
    """Write the first word of a sentence as inside sentences."""
    write_lines(output, map_lines(lambda: truecaser_of(model), read_lines(source), workers))
