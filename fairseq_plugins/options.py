"""Options of a command, whose every mistake is one line."""

from __future__ import annotations

import argparse
import sys
from itertools import takewhile
from typing import Any, NoReturn, Optional, Sequence

from fairseq_plugins.errors import UserError, nearest


class OneLineParser(argparse.ArgumentParser):
    """Ends in one line and code 2, like every other mistake; knows options by their whole names only."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Refuse.

        Raises:
            UserError: always.
        """
        raise UserError(f"{message} ({self.prog} --help says more)")

    def read(self, argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
        """Read the command line (default: that of this process).

        Raises:
            UserError: an option that is none, with the nearest one; a value that is none.
        """
        words = list(sys.argv[1:] if argv is None else argv)
        legal = [option for action in self._actions for option in action.option_strings if option[:2] == "--"]
        # Before anything else: of a required option that is misspelt, argparse would say that it is missing.
        for word in takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            if word.startswith("--") and name not in legal:
                raise UserError(f"unknown option '{name}'{nearest(name, legal)}; legal: {', '.join(legal)}")
        args, unknown = self.parse_known_args(words)
        if unknown:
            self.error(f"unexpected: '{unknown[0]}'")
        return args
