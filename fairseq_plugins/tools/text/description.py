"""Describe a prepared text: its tokens, subwords and case, and how it differs from the published one.

A preparation writes this into ``text.json``. An evaluation undoes it and must not guess it from the existing files.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Literal

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import write_whole
from fairseq_plugins.lines import read_lines
from fairseq_plugins.records import parse_json
from fairseq_plugins.tools.text.moses import Transform
from fairseq_plugins.tools.text.words import lower_case, straightened

FILE = "text.json"
TOKENISERS = ("moses", "none", "bytes")
"""``none``: words as written or as in the published references; ``bytes``: one number per byte."""
SUBWORDS = ("subword_nmt", "sentencepiece", "none")
"""fairseq's names in ``--remove-bpe``."""
CHANGES = ("apostrophes", "punctuation")
"""Changes of a published sentence other than its case: ' for ’; normalised punctuation."""
MARKS: Mapping[str, re.Pattern[str]] = {"@@ ": re.compile("@@( |$)"), "▁": re.compile("▁")}
_SAMPLE = 1000
_MARKED = 0.01
"""Maximum share of lines with a mark in text that is not in subwords; with subwords, half of the lines have one."""


@dataclass(frozen=True)
class Description:
    """The content of ``text.json``.

    Args:
        tokeniser: one of :data:`TOKENISERS`.
        subwords: one of :data:`SUBWORDS`.
        lower_case: whether the text is lower-cased.
        truecased: whether the first word of a sentence is written as inside sentences.
        changed: by the name of a set, the :data:`CHANGES` of its text against the published one.
    """

    tokeniser: str
    subwords: str = "none"
    lower_case: bool = False
    truecased: bool = False
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, name, legal in (("tokeniser", self.tokeniser, TOKENISERS), ("subwords", self.subwords, SUBWORDS)):
            if name not in legal:
                raise UserError(unknown_name(what, name, legal))
        for change in (change for changes in self.changed.values() for change in changes):
            if change not in CHANGES:
                raise UserError(unknown_name("change", change, CHANGES))

    def as_prepared(self, name: str, language: str) -> Transform:
        """The function that changes a published sentence of the set ``name`` like the preparation, except tokens."""
        from fairseq_plugins.tools.text.moses import normaliser

        kinds = {"apostrophes": straightened, "punctuation": normaliser(language)}
        steps = [kinds[kind] for kind in self.changed.get(name, ())] + ([lower_case] if self.lower_case else [])
        return lambda line: reduce(lambda text, step: step(text), steps, line)

    def write(self, output: Path) -> None:
        """Write the description; an equal file stays: a finished preparation that is called again changes nothing."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        if not output.is_file() or output.read_text(encoding="utf-8") != text:
            write_whole(output, text)


def described(directory: Path) -> Description | None:
    """The description of a prepared directory's text; None if it has none, and a UserError if it is damaged."""
    path = directory / FILE
    if not path.is_file():
        return None
    try:
        return Description(**parse_json(path.read_bytes(), {"changed": ({str: [str]}, None)}))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: not written by `python -m fairseq_plugins.tools.text describe`: {error}") from None


def describe(
    output: Path,
    *,
    tokeniser: Literal["moses", "none", "bytes"],
    subwords: Literal["subword_nmt", "sentencepiece", "none"] = "none",
    lower_case: bool = False,
    truecased: bool = False,
) -> None:
    """Describe a text in text.json: tokens, subwords, case."""
    Description(tokeniser, subwords, lower_case, truecased).write(output)


def require_no_marks(files: Sequence[Path]) -> None:
    """Check that text is not in subwords: a subword mark is in no more of its first lines than by chance."""
    for path in files:
        lines = list(islice(read_lines(path), _SAMPLE))
        for mark, pattern in MARKS.items():
            if sum(1 for line in lines if pattern.search(line)) > _MARKED * len(lines):
                raise UserError(
                    f"{path}: contains '{mark}', a subword mark: set --given-subwords to bpe, sentencepiece or none, "
                    "and --given-tokeniser moses if its words are Moses' tokens"
                )
