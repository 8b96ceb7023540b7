"""Moses' tools by sacremoses: normalise punctuation, split words from it and join them again, truecase.

With the rules of Moses' Perl that sacremoses lacks; the published tokens of IWSLT'14 are what they make.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal

import regex
from sacremoses import MosesDetokenizer, MosesDetruecaser, MosesPunctNormalizer, MosesTokenizer, MosesTruecaser
from sacremoses.indic import NUKTAS, VIRAMAS

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_file
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.words import lower_case as lower_cased
from fairseq_plugins.text.words import straightened
from fairseq_plugins.workers import Transform, map_lines

# Characters: normalize-punctuation and remove-non-printing-char ------------------------------------------------------


def without_control_characters(line: str) -> str:
    """Replace every character of Unicode's category "other" by a space, like remove-non-printing-char.perl."""
    if line.isprintable():
        return line
    return "".join(" " if unicodedata.category(character).startswith("C") else character for character in line)


@cache
def normaliser(language: str) -> Transform:
    """Both steps, in the order of fairseq's preparation of WMT.

    The order of quotation marks and commas is the language's.
    """
    normalise = MosesPunctNormalizer(lang=language, perl_parity=True).normalize
    # Perl's lines have a line end, which its rule for a full stop before a closing quotation mark needs.
    return lambda line: without_control_characters(str(normalise(line + "\n")))


def normalise(inputs: Sequence[Path], output: Path, *, language: str, workers: int = 1) -> None:
    """Normalise punctuation; drop control characters."""
    write_lines(output, map_lines(lambda: normaliser(language), read_lines(*inputs), workers))


def straighten(source: Path, output: Path) -> None:
    """Replace ’ by ', as fairseq's preparations do with test sets."""
    write_lines(output, map(straightened, read_lines(source)))


# Tokens: tokenizer and detokenizer -----------------------------------------------------------------------------------


class Splitter(MosesTokenizer):
    """sacremoses with three rules of Moses' tokenizer.perl that it lacks.

    - The full stop of the last word is split off, also from abbreviations (Moses since November 2018; the published
      IWSLT'14 text is made with it).
    - Finnish and Swedish keep a colon before lower-case letters (``EU:n``).
    - Letters of every script count as letters, ideographs and Hangul, too. (The marks of Indic scripts stay in their
      words, as in sacremoses; Moses splits them off.)

    Args:
        language: two letters.
        last_full_stop: the first rule; False is Moses before November 2018.
    """

    # Characters that sacremoses adds to the letters and digits of its own tables.
    _MARKS = "".join(VIRAMAS + NUKTAS)
    _COLON = regex.compile(r":(?!\p{Ll})")

    def __init__(self, language: str, last_full_stop: bool = True) -> None:
        super().__init__(lang=language)
        self._last_full_stop = last_full_stop
        self._colon_in_words = language in {"fi", "sv"}
        kept = ":" if self._colon_in_words else ""
        self.PAD_NOT_ISALNUM = regex.compile(rf"([^\p{{Alnum}}{self._MARKS}\s.'`,\-{kept}])"), r" \1 "
        self.AGGRESSIVE_HYPHEN_SPLIT = regex.compile(r"(\p{Alnum})-(?=\p{Alnum})"), r"\1 @-@ "

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        """Split full stops off words, except abbreviations inside the sentence."""
        words = text.split()
        if self._last_full_stop and words and len(words[-1]) > 1 and words[-1].endswith("."):
            text = " ".join([*words[:-1], words[-1][:-1], "."])
        return str(super().handles_nonbreaking_prefixes(text))

    def isanyalpha(self, text: str) -> bool:
        """Whether a word that ends in a full stop has a letter of any script."""
        return any(map(str.isalpha, text))

    def replace_multidots(self, text: str) -> str:
        """The step after the special characters, extended: split off a colon that is not inside a word."""
        return str(super().replace_multidots(self._COLON.sub(" : ", text) if self._colon_in_words else text))


def tokeniser(
    language: str,
    kind: str = "moses",
    normalise: bool = False,
    aggressive: bool = False,
    escape: bool = True,
    lower_case: bool = False,
) -> Transform:
    """The function that makes tokens, separated by single spaces, of a line; options as of :func:`tokenise`."""
    split = Splitter(language).tokenize
    normalised = normaliser(language) if normalise else str

    def tokens(line: str) -> str:
        line = normalised(line)
        if kind == "moses":
            line = str(split(line, aggressive_dash_splits=aggressive, return_str=True, escape=escape))
        else:
            # Other tools take some characters of white space for line ends.
            line = " ".join(line.split())
        return lower_cased(line) if lower_case else line

    return tokens


def detokeniser(language: str, unescape: bool = True) -> Transform:
    """Plain text of space-separated tokens; entities are resolved unless ``unescape`` is false."""
    detokenise = MosesDetokenizer(lang=language).detokenize
    return lambda tokens: str(detokenise(tokens.split(), return_str=True, unescape=unescape))


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


# Case: train-truecaser, truecase and detruecase ----------------------------------------------------------------------


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
