"""fairseq's commands reply to a misspelt option with 200 lines of usage, to a misspelt name with all 300 legal ones.

https://github.com/facebookresearch/fairseq/issues/3403
"""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fairseq import options

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.options import OneLineParser

REQUIRED = "the following arguments are required: "

EXPLAINED: dict[str, Callable[[str | None, str], None]] = {}
"""By option, a function with a better message for an unknown name than a list; called with the value and the option.

Each raises UserError, unless the value is legal.
"""


class FairseqParser(OneLineParser):
    """A parser of fairseq, which reads the command line twice: options that a value adds are known only at the end."""

    words: Sequence[str] = ()
    complete = False
    """Whether the options of the architecture, the task, the criterion, ... have been added."""

    def error(self, message: str) -> NoReturn:
        """Refuse; argparse would report a misspelt required option as missing.

        Raises:
            UserError: always.
        """
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

    def _check_value(self, action: Action, value: Any) -> None:
        if explain := EXPLAINED.get(f"--{action.dest}"):
            explain(value, f"--{action.dest}")
        super()._check_value(action, value)


def make_one_line(parser: ArgumentParser, words: Sequence[str] | None = None) -> None:
    """Make ``parser`` report in one line; fairseq creates its parsers before it imports a user directory."""
    if type(parser) is not ArgumentParser:
        return
    parser.__class__ = FairseqParser
    assert isinstance(parser, FairseqParser)
    parser.words = sys.argv[1:] if words is None else words
    for action in parser._actions:
        # fairseq-train raises an error without a message if it is missing; other commands have a default.
        action.required = action.required or (action.dest == "arch" and action.default is None)
        # fairseq-validate alone has none, and fails with a KeyError.
        if action.dest == "task" and action.default is None:
            action.default = "translation"


def parse_in_one_line(
    parse: Callable[..., Any], parser: ArgumentParser, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """``parse_args_and_arch`` with a parser that reports each mistake in one line."""
    make_one_line(parser, input_args)
    return parse(parser, input_args, *args, **kwargs)


def preprocess_in_one_line(add_args: Callable[..., ArgumentParser], parser: ArgumentParser) -> ArgumentParser:
    """``add_preprocess_args``, the last call before fairseq-preprocess parses."""
    make_one_line(parser)
    return add_args(parser)


WRAPPED = (
    (options, "parse_args_and_arch", parse_in_one_line, 30),
    (options, "add_preprocess_args", preprocess_in_one_line),
)
"""The functions that fairseq calls after it has imported a user directory."""
