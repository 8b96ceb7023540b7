"""A byte order mark in a dictionary becomes a part of its first word, which is then unknown in every text.

https://github.com/facebookresearch/fairseq/issues/3417
Another mark is lost: a word that replaces an earlier one ends in ``#fairseq:overwrite``, and fairseq's own copy of the
dictionary, which nothing can read, does not say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fairseq.data.dictionary import Dictionary

from fairseq_plugins.errors import UserError

MARK = "\ufeff"
OVERWRITE = " #fairseq:overwrite"


def read_without_mark(add_from_file: Callable[..., None], dictionary: Dictionary, file: Any) -> None:
    """``Dictionary.add_from_file`` that refuses what it would misread.

    Raises:
        UserError: the first word begins with the mark.
    """
    first = len(dictionary)
    add_from_file(dictionary, file)
    if dictionary.symbols[first:] and dictionary[first].startswith(MARK) and dictionary[first] != MARK:
        raise UserError(f"{getattr(file, 'name', file)}: line 1: begins with a byte order mark; remove it")


def save_marked(
    save: Callable[..., None], dictionary: Dictionary, file: Any, counts: Iterable[tuple[str, object]]
) -> None:
    """``Dictionary._save`` that marks the words which replace earlier ones, as they were read."""
    seen = set(dictionary.symbols[: dictionary.nspecial])

    def marked() -> Iterator[tuple[str, object]]:
        for word, count in counts:
            yield word, f"{count}{OVERWRITE}" if word in seen else count
            seen.add(word)

    save(dictionary, file, marked())


WRAPPED = ((Dictionary, "add_from_file", read_without_mark), (Dictionary, "_save", save_marked))
