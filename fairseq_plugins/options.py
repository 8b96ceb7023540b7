"""Argument parser that reports each mistake in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from fairseq_plugins.errors import UserError, nearest, unknown_name

KINDS = {"int": "a whole number", "float": "a number", "<lambda>": "a number, or several with commas between them"}
"""Words for the types of options, by the names of their functions; some of fairseq's have no name."""

LISTED = 60
"""Maximum number of legal names in a message; ``--help`` has longer lists."""


class OneLineParser(argparse.ArgumentParser):
    """Parser that raises a UserError of one line, and accepts no abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Refuse.

        Raises:
            UserError: always.
        """
        raise UserError(f"{message} ({self.prog} --help says more)")

    def read(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Read the command line (default: this process's).

        Raises:
            UserError: an unknown option, with the nearest one; an illegal value.
        """
        words = list(sys.argv[1:] if argv is None else argv)
        # This comes first: argparse would report a misspelt required option as missing.
        for name in self.unknown(words):
            raise self._refusal(name)
        args, unknown = self.parse_known_args(words)
        if unknown:
            self.error(f"unexpected: '{unknown[0]}'")
        return args

    def unknown(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the options in ``words`` that this command does not have."""
        legal = self._long_options()
        for word in takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            # argparse treats a word with a space as a value.
            if word.startswith("--") and " " not in name and not self._means_one(name, legal):
                yield name

    def _means_one(self, name: str, legal: Sequence[str]) -> bool:
        return name in legal or (self.allow_abbrev and any(option.startswith(name) for option in legal))

    def _long_options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings if option[:2] == "--"]

    def _refusal(self, name: str) -> UserError:
        legal = self._long_options()
        listed = f"; legal: {', '.join(legal)}" if len(legal) <= LISTED else f"; {self.prog} --help lists them all"
        return UserError(f"unknown option '{name}'{nearest(name, legal)}{listed}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if len(names) > LISTED:
            self.error(f"unknown {_name(action)} '{value}'{nearest(str(value), names)}")
        raise UserError(unknown_name(_name(action), str(value), names))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        convert = self._registry_get("type", action.type, action.type)
        try:
            return convert(arg_string)
        except argparse.ArgumentTypeError as error:
            self.error(f"{_name(action)} {arg_string}: {error}")
        except Exception as error:
            kind = KINDS.get(getattr(convert, "__name__", ""), "a legal value")
            raise UserError(f"{_name(action)} {arg_string}: not {kind}") from error


def _name(action: argparse.Action) -> str:
    """Return the option as its users write it."""
    return "/".join(action.option_strings) or str(action.metavar or action.dest)
