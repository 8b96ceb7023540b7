"""A byte order mark in a dictionary becomes a part of its first word, which is then unknown in every text.

https://github.com/facebookresearch/fairseq/issues/3417
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.data.dictionary import Dictionary

from fairseq_plugins.errors import UserError

MARK = "\ufeff"


def read_without_mark(add_from_file: Callable[..., None], dictionary: Dictionary, file: Any) -> None:
    """``Dictionary.add_from_file`` that refuses what it would misread.

    Raises:
        UserError: the first word begins with the mark.
    """
    first = len(dictionary)
    add_from_file(dictionary, file)
    if dictionary.symbols[first:] and dictionary[first].startswith(MARK) and dictionary[first] != MARK:
        raise UserError(f"{getattr(file, 'name', file)}: line 1: begins with a byte order mark; remove it")


WRAPPED = ((Dictionary, "add_from_file", read_without_mark),)
