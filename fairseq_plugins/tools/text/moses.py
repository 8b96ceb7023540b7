"""Moses' rules by sacremoses: normalise punctuation, split words from it and join them again, restore capitals.

With the rules of Moses' Perl that sacremoses lacks; they make the published tokens of IWSLT'14. This module
and ``words`` need nothing of the package: an export to Hugging Face transformers has copies of both.
"""

import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

import regex
from sacremoses import MosesDetokenizer, MosesDetruecaser, MosesPunctNormalizer, MosesTokenizer, MosesTruecaser
from sacremoses.indic import NUKTAS, VIRAMAS

from .words import lower_case as lower_cased

# Relative, as transformers finds what it has to copy.
from .words import straightened

Transform = Callable[[str], str]

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
    """The function that makes tokens, separated by single spaces, of a line; options as of :func:`.steps.tokenise`."""
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


def detokeniser(language: str) -> Transform:
    """Plain text of space-separated tokens, with entities resolved."""
    detokenise = MosesDetokenizer(lang=language).detokenize
    return lambda tokens: str(detokenise(tokens.split(), return_str=True))


# Case: train-truecaser, truecase and detruecase ----------------------------------------------------------------------


def truecaser(model: str) -> Transform:
    """The function that truecases a line of tokens by a model of Moses; an OSError or ValueError if it is none."""
    truecase = MosesTruecaser(load_from=model).truecase
    return lambda line: str(truecase(line, return_str=True, use_known=True))


def recaser() -> Transform:
    """The function that restores the capitals at the beginning of sentences in truecased tokens."""
    recase = MosesDetruecaser().detruecase
    return lambda line: str(recase(line, return_str=True))


# The whole way -------------------------------------------------------------------------------------------------------


def files_of(form: Any) -> list[str]:
    """The names of the files that a text of this form needs: of subwords, of their counts, of a truecaser."""
    needs = {"codes": form.subwords != "none", "vocabulary": form.threshold > 0, "truecaser": form.truecased}
    return [name for name, needed in needs.items() if needed]


def encoder(
    form: Any, language: str, truecase: Transform | None = None, split: Transform | None = None
) -> Callable[[str], list[str]]:
    """The function that makes tokens of a raw line, none of white space.

    Args:
        form: how a text is prepared, with the attributes of ``tools.translator.preprocessor.Preprocessor``.
        language: of the line.
        truecase: restores the case of a line of tokens.
        split: makes subwords of a line of tokens.
    """
    steps: list[Transform | None] = [straightened] if form.apostrophes else []
    steps.append(tokeniser(language, form.tokeniser, form.normalise, form.aggressive, form.escape, form.lower_case))
    steps += [truecase, split]

    def encode(line: str) -> list[str]:
        for step in filter(None, steps):
            line = step(line)
        return line.split()

    return encode


def decoder(form: Any, language: str) -> Transform:
    """The function that makes text of the words of a translation; ``form`` as of :func:`encoder`."""
    recase = recaser() if form.truecased else str
    detokenise = detokeniser(language) if form.tokeniser == "moses" else str
    return lambda words: detokenise(recase(words))
