"""Completion in a shell: argcomplete starts the command itself with the line so far, which answers with its next words.

The command is run up to the point where its parser would read the command line. The options of fairseq's own commands
are not completed: their parsers need seconds of imports.
"""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import Any
from unittest import mock

import argcomplete
from argcomplete.lexers import split_line

from fairseq_plugins.cli.main import COMMANDS, own
from fairseq_plugins.options import OneLineParser


def complete() -> None:
    """Answer the shell; ends the process if there is something to answer."""
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    _, _, _, words, _ = split_line(line, point)
    start = int(os.environ["_ARGCOMPLETE"])
    if len(words) == start:
        parser = argparse.ArgumentParser()
        parser.add_argument("command", choices=COMMANDS)
        parser.add_argument("--version", action="store_true")
        argcomplete.autocomplete(parser)
    command = COMMANDS.get(words[start])
    if command is None or command.runner is not own:
        return
    module = import_module(command.module)
    # The name of the command takes the place of the program.
    os.environ["_ARGCOMPLETE"] = str(start + 1)
    with mock.patch.object(OneLineParser, "read", _answer):
        module.main([])


def _answer(parser: argparse.ArgumentParser, *_: Any) -> None:
    argcomplete.autocomplete(parser)
