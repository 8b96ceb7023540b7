"""Argument parser that reports each mistake in one line."""

import argparse
import math
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
    "<lambda>": "a number, or several with commas between them",
}
"""Words for the types of options, by the names of their functions; some of fairseq's have no name."""

REQUIRED = "the following arguments are required: "

EXPLAINED: dict[str, Callable[[str | None, str], None]] = {}
"""Functions, keyed by option, that explain an unknown name better than a list; called with the value and the option.

Each raises UserError, unless the value is legal.
"""

LISTED = 60
"""Maximum number of legal names in a message; ``--help`` has longer lists."""


class _Help(argparse.HelpFormatter):
    """Help that shows every default, unless the text of the option names it, and keeps paragraphs."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        unset = action.default is False or action.default in (None, "", argparse.SUPPRESS, [])
        if unset or not action.option_strings or "default:" in text or "%(default)" in text:
            return text
        shown = " ".join(map(str, action.default)) if isinstance(action.default, list) else "%(default)s"
        return f"{text} (default: {'on' if action.default is True else shown})".strip()


class OneLineParser(argparse.ArgumentParser):
    """Parser that raises a UserError of one line, and accepts no abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **settings})

    def error(self, message: str) -> NoReturn:
        """Raise a UserError."""
        raise UserError(f"{message} (see {self.prog} --help)")

    def read(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Read the command line (default: this process's); a UserError names an unknown option or an illegal value."""
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


class FairseqParser(OneLineParser):
    """A parser of fairseq, which reads the command line twice: options that a value adds are known only at the end."""

    words: Sequence[str] = ()
    complete = False
    """Whether the options of the architecture, the task, the criterion, ... have been added."""

    def error(self, message: str) -> NoReturn:
        """Raise a UserError; argparse would report a misspelt required option as missing."""
        if message.startswith(REQUIRED):
            missing = message[len(REQUIRED) :].replace("/", ", ").split(", ")
            for name in self.unknown(self.words):
                if near := nearest(name, missing):
                    raise UserError(f"unknown option '{name}'{near}")
            for option in EXPLAINED.keys() & set(missing):
                EXPLAINED[option](None, option)
        super().error(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Read the command line; where ``--arch`` is given, ``--help`` waits for the options of the architecture."""
        words = list(sys.argv[1:] if args is None else args)
        if not self.complete and any(word.partition("=")[0] in ("--arch", "-a") for word in words):
            words = [word for word in words if word not in ("-h", "--help")]
        return super().parse_known_args(words, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the command line, the second time."""
        self.complete = True
        return self.read(args)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if explain := EXPLAINED.get(f"--{action.dest}"):
            explain(value, f"--{action.dest}")
        super()._check_value(action, value)


def make_one_line(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> None:
    """Make ``parser`` report in one line; fairseq creates its parsers before it imports a user directory."""
    if type(parser) is not argparse.ArgumentParser:
        return
    parser.__class__ = FairseqParser
    assert isinstance(parser, FairseqParser)
    parser.formatter_class = _Help
    parser.words = sys.argv[1:] if words is None else words
    for action in parser._actions:
        # fairseq-train raises an error without a message if it is missing; other commands have a default.
        action.required = action.required or (action.dest == "arch" and action.default is None)
        # fairseq-validate alone has none, and fails with a KeyError.
        if action.dest == "task" and action.default is None:
            action.default = "translation"


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
