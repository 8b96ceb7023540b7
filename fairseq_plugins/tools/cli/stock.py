"""fairseq's own commands, with the user directory of this package already set."""

import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

from fairseq_plugins.options import OneLineParser
from fairseq_plugins.tools.pipeline.checkout import USER_DIR, refuse_other_user_dir


def plain(name: str, module: Any, argv: Sequence[str]) -> int:
    """Run a command of fairseq that builds no model; it needs the patches of this package, not the user directory."""
    # fairseq's commands read sys.argv, and argparse finds the name there that it prints.
    with mock.patch.object(sys, "argv", [f"fairseq-deep {name}", *argv]):
        module.cli_main()
    return 0


def with_user_dir(name: str, module: Any, argv: Sequence[str]) -> int:
    """Run a command of fairseq with ``--user-dir`` set; a UserError if ``argv`` names another."""
    parser = OneLineParser(add_help=False)
    parser.add_argument("--user-dir")
    given, rest = parser.parse_known_args(argv)
    refuse_other_user_dir(given.user_dir)
    return plain(name, module, ["--user-dir", USER_DIR, *rest])
