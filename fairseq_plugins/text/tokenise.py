"""Split words from punctuation and join them again: Moses' tokenizer and detokenizer.

Uses sacremoses with the rules that it lacks, or Moses' Perl if ``MOSES`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import regex
from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.indic import NUKTAS, VIRAMAS

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text import moses
from fairseq_plugins.text.command import add_files, add_workers, parser_of
from fairseq_plugins.text.lower_case import lower_case
from fairseq_plugins.text.normalise import normaliser, without_control_characters
from fairseq_plugins.text.truecase import recaser
from fairseq_plugins.workers import Transform, map_lines

KINDS = ("moses", "none")


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


@dataclass(frozen=True)
class Tokenisation:
    """How text becomes tokens separated by single spaces.

    Args:
        language: two letters; abbreviations and apostrophes depend on it.
        kind: ``moses``, or ``none`` for tokenised text, which only gets single spaces.
        normalise: normalise punctuation and drop control characters first.
        aggressive: split at hyphens (``tokenizer.perl -a``).
        escape: write & | < > ' " [ ] as entities, as Moses does by default.
        lower_case: lower-case the text.
    """

    language: str
    kind: str = "moses"
    normalise: bool = False
    aggressive: bool = False
    escape: bool = True
    lower_case: bool = False

    def transform(self) -> Transform:
        """The function for one line, by sacremoses."""
        steps: list[Transform] = [normaliser(self.language)] if self.normalise else []
        steps.append(self._splitter() if self.kind == "moses" else one_space)
        if self.lower_case:
            steps.append(lower_case)
        return lambda line: _in_turn(steps, line)

    def _splitter(self) -> Transform:
        tokenise = Splitter(self.language).tokenize
        return lambda line: str(
            tokenise(line, aggressive_dash_splits=self.aggressive, return_str=True, escape=self.escape)
        )


def _in_turn(steps: Iterable[Callable[[str], str]], line: str) -> str:
    for step in steps:
        line = step(line)
    return line


def one_space(line: str) -> str:
    """Replace all white space by single spaces: other tools take some of its characters for line ends."""
    return " ".join(line.split())


def tokenised(how: Tokenisation, lines: Iterable[str], workers: int = 1) -> Iterator[str]:
    """Tokenise lines with sacremoses, or with Moses' Perl if ``MOSES`` is set.

    Raises:
        UserError: ``MOSES`` is set to something else, or its program failed.
    """
    scripts = moses.scripts() if how.kind == "moses" else None
    if scripts is None:
        return map_lines(how.transform, lines, workers)
    if how.normalise:
        normal = moses.through(moses.normalise_command(scripts, how.language), lines)
        lines = map(without_control_characters, normal)
    tokens = moses.through(moses.tokenise_command(scripts, how.language, how.aggressive, how.escape, workers), lines)
    return map(lower_case, tokens) if how.lower_case else tokens


def detokeniser(language: str, unescape: bool = True) -> Transform:
    """Plain text of space-separated tokens, by sacremoses; entities are resolved unless ``unescape`` is false."""
    detokenise = MosesDetokenizer(lang=language).detokenize
    return lambda tokens: str(detokenise(tokens.split(), return_str=True, unescape=unescape))


def detokenised(language: str, lines: Iterable[str], workers: int = 1) -> Iterator[str]:
    """Detokenise lines with sacremoses, or with Moses' Perl if ``MOSES`` is set.

    Raises:
        UserError: ``MOSES`` is set to something else, or its program failed.
    """
    if scripts := moses.scripts():
        return moses.through(moses.detokenise_command(scripts, language), lines)
    return map_lines(lambda: detokeniser(language), lines, workers)


def main(argv: Sequence[str]) -> int:
    """``tokenise --language L INPUT ... OUTPUT``."""
    flags = parser_of("tokenise", __doc__)
    flags.add_argument("--language", required=True, metavar="L")
    flags.add_argument("--kind", choices=KINDS, default="moses", help="none: only replace white space by single spaces")
    flags.add_argument("--normalise", action="store_true", help="normalise punctuation first")
    flags.add_argument("--aggressive", action="store_true", help="split at hyphens")
    flags.add_argument(
        "--no-escape", dest="escape", action="store_false", help="do not escape special characters, such as ' as &apos;"
    )
    flags.add_argument("--lower-case", action="store_true")
    add_workers(flags)
    add_files(flags)
    args = flags.read(argv)
    how = Tokenisation(args.language, args.kind, args.normalise, args.aggressive, args.escape, args.lower_case)
    write_lines(args.output, tokenised(how, read_lines(*args.inputs), args.workers))
    return 0


def main_of_detokenise(argv: Sequence[str]) -> int:
    """``detokenise --language L INPUT ... OUTPUT``."""
    flags = parser_of("detokenise", __doc__)
    flags.add_argument("--language", required=True, metavar="L")
    flags.add_argument("--recase", action="store_true", help="the text is truecased: sentences begin with a capital")
    add_workers(flags)
    add_files(flags)
    args = flags.read(argv)
    lines = read_lines(*args.inputs)
    if args.recase:
        lines = map(recaser(), lines)
    write_lines(args.output, detokenised(args.language, lines, args.workers))
    return 0
