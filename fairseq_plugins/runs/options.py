"""Options of a command, whose every mistake is one line."""

from __future__ import annotations

import argparse
from typing import NoReturn, Optional, Sequence

from fairseq_plugins.errors import UserError, nearest


class OneLineParser(argparse.ArgumentParser):
    """Ends in one line and code 2, like every other mistake."""

    def error(self, message: str) -> NoReturn:
        """Refuse.

        Raises:
            UserError: always.
        """
        raise UserError(f"{message} ({self.prog} --help says more)")

    def read(self, argv: Optional[Sequence[str]]) -> argparse.Namespace:
        """Read the command line.

        Raises:
            UserError: an option that is none, with the nearest one; a value that is none.
        """
        args, unknown = self.parse_known_args(argv)
        if unknown:
            legal = [option for action in self._actions for option in action.option_strings if option[:2] == "--"]
            name = unknown[0].partition("=")[0]
            raise UserError(f"unknown option '{name}'{nearest(name, legal)}; legal: {', '.join(legal)}")
        return args
