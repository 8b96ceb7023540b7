"""Argument parser that reports each mistake in one line."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from fairseq_plugins.errors import UserError, nearest, unknown_name
from fairseq_plugins.process import at_once

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "part_of": "of the form K/N",
    "<lambda>": "a number, or several with commas between them",
}
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
            legal = self._long_options()
            listed = f"legal: {', '.join(legal)}" if len(legal) <= LISTED else f"{self.prog} --help lists them all"
            raise UserError(f"unknown option '{name}'{nearest(name, legal)}; {listed}")
        # A list of names or changes may go on after an option; argparse does not do that and "--" at once.
        parse = self.parse_known_args if "--" in words else self.parse_known_intermixed_args
        with at_once():  # argparse answers Ctrl-C with an AttributeError
            args, unknown = parse(words)
        if unknown:
            self.error(f"unexpected: '{unknown[0]}'")
        return args

    def unknown(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the options in ``words`` that this command does not have."""
        legal = self._long_options()
        for word in takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            means_one = name in legal or (self.allow_abbrev and any(option.startswith(name) for option in legal))
            # argparse treats a word with a space as a value.
            if word.startswith("--") and " " not in name and not means_one:
                yield name

    def _long_options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings if option[:2] == "--"]

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
        except UserError:
            raise
        except Exception as error:
            kind = KINDS.get(getattr(convert, "__name__", ""), "a legal value")
            raise UserError(f"{_name(action)} {arg_string}: not {kind}") from error


class ScriptParser(OneLineParser):
    """Parser of a command that a script in ``scripts/`` calls with the settings that it was given.

    ``--from-environment`` reads each option that is not on the command line from the environment variable of its name:
    ``BEAM=4`` is ``--beam 4``. Without it nothing is read there: variables of such names may mean other things.

    Args:
        **settings: of the parser.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_argument(
            FROM_ENVIRONMENT,
            action="store_true",
            help="an option that is not given is the variable of its name, as BEAM for --beam; the scripts say this",
        )

    def read(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Read the command line, and the environment where the command line says so.

        Raises:
            UserError: as :meth:`OneLineParser.read`; a switch in the environment is neither 0 nor 1.
        """
        words = list(sys.argv[1:] if argv is None else argv)
        if FROM_ENVIRONMENT in words:
            given = {word.partition("=")[0] for word in words}
            words += self._settings(given)
        return super().read(words)

    def _settings(self, given: set[str]) -> Iterator[str]:
        for action in self._actions:
            name, flags = action.dest.upper(), action.option_strings
            value = os.environ.get(name, "")
            if not (value and flags and given.isdisjoint(flags)):
                continue
            if action.nargs == "+":
                yield from (flags[0], *value.split())
            elif action.nargs != 0:
                yield f"{flags[0]}={value}"
            elif value in ("0", "1"):
                # An option that can be switched off has a second name for that.
                yield from flags[:1] if value == "1" else flags[1:]
            else:
                raise UserError(unknown_name(name, value, ("0", "1")))


FROM_ENVIRONMENT = "--from-environment"


def given_again(args: argparse.Namespace, actions: Iterable[argparse.Action]) -> list[str]:
    """The words that give another command the same values of these options, those at their defaults left out."""
    words: list[str] = []
    for action in actions:
        value = getattr(args, action.dest)
        if value != action.default and action.nargs == 0:
            words += action.option_strings[:1] if value else action.option_strings[1:]
        elif value != action.default:
            words.append(f"{action.option_strings[0]}={value}")
    return words


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number from ``least`` on."""

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"not a whole number of at least {least}")
        return int(text)

    return convert


def finite(text: str) -> float:
    """The type of an option that is a number, neither infinite nor NaN."""
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError("not a finite number")
    return number


def _name(action: argparse.Action) -> str:
    """Return the option as its users write it."""
    return "/".join(action.option_strings) or str(action.metavar or action.dest)
