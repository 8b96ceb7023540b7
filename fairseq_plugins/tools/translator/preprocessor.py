"""From raw text to the tokens that a model reads, and back, as its training text was prepared."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from fairseq_plugins.tools.text import moses, subwords
from fairseq_plugins.tools.text.description import Description
from fairseq_plugins.tools.text.steps import truecaser_of
from fairseq_plugins.tools.text.words import joined

CODES, VOCABULARY, TRUECASER = "codes", "vocabulary", "truecaser"
"""Files of a package: merges of subword-nmt or a model of sentencepiece; counts of subwords; a truecaser."""
ENDS_OF_SENTENCES, ENDS_OF_CLAUSES = ".!?…。！？", ",;:，；："


@dataclass(frozen=True)
class Preprocessor:
    """Steps from raw text to tokens, and from tokens to text.

    Args:
        source, target: languages, two letters.
        tokeniser: ``moses`` or ``none``.
        subwords: ``subword_nmt``, ``sentencepiece`` or ``none``, fairseq's names.
        normalise: whether punctuation is normalised and control characters are dropped.
        apostrophes: whether ’ becomes '.
        aggressive, escape: options of :func:`fairseq_plugins.tools.text.moses.tokeniser`.
        lower_case, truecased: see :class:`fairseq_plugins.tools.text.description.Description`.
        threshold: subwords with a lower count in the vocabulary are split.
    """

    source: str
    target: str
    tokeniser: str = "none"
    subwords: str = "none"
    normalise: bool = False
    apostrophes: bool = False
    aggressive: bool = False
    escape: bool = True
    lower_case: bool = False
    truecased: bool = False
    threshold: int = 0

    def encoder(self, directory: Path) -> Callable[[str], list[str]]:
        """Return the function that splits a line into tokens, without white space; an unusable file is a UserError."""
        truecase = truecaser_of(directory / TRUECASER) if self.truecased else None
        split = None
        if self.subwords == "subword_nmt":
            vocabulary = directory / VOCABULARY if self.threshold else None
            split = subwords.load_bpe(directory / CODES, vocabulary, self.threshold).process_line
        elif self.subwords == "sentencepiece":
            split = subwords.load_pieces(directory / CODES)
        return moses.encoder(self, self.source, truecase, split)

    def decoder(self) -> Callable[[Sequence[str]], str]:
        """Return the function that turns the tokens of a translation into text."""
        decode = moses.decoder(self, self.target)
        return lambda tokens: decode(joined(" ".join(tokens), self.subwords).strip())

    def cut(self, tokens: Sequence[str], longest: int) -> Iterator[Sequence[str]]:
        """Cut the tokens of a line into parts of at most ``longest`` tokens.

        A part ends at the last end of a sentence in its second half, else of a clause, else at the last end of a word,
        else anywhere.
        """
        start = 0
        while len(tokens) - start > longest:
            end = start + longest
            ends = [place for place in range(start + 1, end + 1) if self._ends_word(tokens, place)]
            late = [place for place in ends if place > start + longest // 2]
            for marks in (ENDS_OF_SENTENCES, ENDS_OF_CLAUSES):
                if behind_marks := [place for place in late if unescape(tokens[place - 1]).endswith(tuple(marks))]:
                    end = behind_marks[-1]
                    break
            else:
                end = ends[-1] if ends else end
            yield tokens[start:end]
            start = end
        yield tokens[start:]

    def _ends_word(self, tokens: Sequence[str], place: int) -> bool:
        """Return whether a word ends before the token at ``place``."""
        if self.subwords == "subword_nmt":
            return not tokens[place - 1].endswith("@@")
        return self.subwords != "sentencepiece" or tokens[place].startswith("▁")


def preprocessor_of(languages: tuple[str, str], text: Description, settings: Mapping[str, str]) -> Preprocessor:
    """Return how a prepared directory was made, by its languages, description and the settings of its file."""
    changes = {change for changes in text.changed.values() for change in changes}
    return Preprocessor(
        *languages,
        tokeniser=text.tokeniser,
        subwords=text.subwords,
        # With NORMALISE=train the published test sets stay unchanged, and a raw text is like those sets.
        normalise=settings.get("NORMALISE") == "all"
        or any("punctuation" in made for name, made in text.changed.items() if name != "valid"),
        apostrophes="apostrophes" in changes,
        aggressive=settings.get("AGGRESSIVE") == "1",
        escape=settings.get("ESCAPE", "1") == "1",
        lower_case=text.lower_case,
        truecased=text.truecased,
        threshold=int(settings.get("VOCABULARY_THRESHOLD", "0")),
    )
