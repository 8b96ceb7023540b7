"""Data that others have written, as JSON or in a checkpoint: read within limits, and checked once against its format.

A format has the shape of its data. ``{"name": str, "devices": ([str], None)}`` is an object with a text ``name`` and,
perhaps, a list of texts; further entries are not checked. ``{str: int}`` is one with any names. A tuple lists
alternatives, a set the legal texts, ``range(1, 9)`` whole numbers; ``float`` is a finite number, ``object`` anything.
"""

import json
import reprlib
import sys
from argparse import Namespace
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, cause_of, unknown_name

DEPTH, ENTRIES = 50, 1 << 20
"""Most levels and entries of a record, each entry counted as often as it is referred to."""
NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a finite number"}


def read_json(path: Path, form: Any) -> Any:
    """Return the content of a JSON file, or raise a UserError: it cannot be read, or is not of this format."""
    try:
        return parse_json(path.read_bytes(), form)
    except OSError as error:
        raise UserError(f"{path}: {cause_of(error)}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def parse_json(text: str | bytes, form: Any) -> Any:
    """Return the content of JSON; a ValueError says in a line why it is not of this format."""
    try:
        content = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"not JSON: {error}") from None
    require(content, form)
    return content


def require(content: Any, form: Any) -> list[Any]:
    """Return the leaves of plain data, without its containers; a ValueError says in a line what is wrong with it.

    It is nested too deep, has too many entries, or is not of this format.
    """
    leaves: list[Any] = []
    level, left = [content], ENTRIES
    for _ in range(DEPTH):
        below: list[Any] = []
        for value in map(_plain, level):
            if not isinstance(value, (dict, list, tuple, set)):
                leaves.append(value)
            elif value:
                below.append(value.values() if isinstance(value, dict) else value)
        level = list(islice(chain.from_iterable(below), left + 1))
        left -= len(level)
        if left < 0:
            raise ValueError(f"more than {ENTRIES:,} entries")
    if level:
        raise ValueError(f"nested in more than {DEPTH} levels")
    if problem := _problem(content, form, ""):
        raise ValueError(problem)
    return leaves


def _plain(value: Any) -> Any:
    return vars(value) if isinstance(value, Namespace) else value


def _problem(value: Any, form: Any, place: str) -> str:
    """Return why ``value`` does not fit, or nothing; of several alternatives the first is the one to explain."""
    value = _plain(value)
    inner: list[tuple[Any, Any, str]] = []
    if isinstance(form, tuple):
        first = _problem(value, form[0], place)
        return first if first and all(_problem(value, one, place) for one in form[1:]) else ""
    if isinstance(form, dict) and isinstance(value, dict):
        for name in value if str in form else form:
            below = f"{place}.{name}".lstrip(".")[-80:]
            inner += [(name, str, below), (value.get(name), form.get(name, form.get(str)), below)]
    elif isinstance(form, list) and isinstance(value, (list, tuple)):
        inner = [(one, form[0], f"{place}[{number}]") for number, one in enumerate(value)]
    else:
        return _mismatch(value, form, place)
    return next(filter(None, starmap(_problem, inner)), "")


def _mismatch(value: Any, form: Any, place: str) -> str:
    kind = form if isinstance(form, type) else type(form)
    if isinstance(form, (range, set)):
        fits = type(value) is (int if isinstance(form, range) else str) and value in form
    elif form is float:
        fits = type(value) in (int, float) and abs(value) <= sys.float_info.max
    elif form is int:
        fits = type(value) is int
    else:
        fits = value is form or (isinstance(form, type) and isinstance(value, form))
    if fits:
        return ""
    if isinstance(form, set):
        return unknown_name(place, str(value)[:40], form)
    wanted = f"{form[0]} to {form[-1]}" if isinstance(form, range) else ""
    return f"{place} is {reprlib.repr(value)}, not {wanted or NAMES.get(kind, kind.__name__)}".lstrip()
