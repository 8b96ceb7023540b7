"""Completion in a shell, asked for as argcomplete's own script for bash does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.cli.main import COMMANDS
from tests import processes

FAST = {
    "fairseq-deep r": {name for name in COMMANDS if name.startswith("r")},
    "fairseq-deep --v": {"--version"},
    "fairseq-deep report runs --b": {"--baseline"},
    "fairseq-deep demo --m": {"--methods"},
    "fairseq-deep train --l": set(),
    "fairseq-deep nothing --l": set(),
}
# Of commands that import fairseq.
SLOW = {"fairseq-deep diagnose --check": {"--checkpoint"}, "fairseq-deep fold --f": {"--force"}}


def completed(line: str, place: Path) -> set[str]:
    """What the shell is answered."""
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    answer = place / "answer"
    # argcomplete writes to the file with the number 8.
    command = ["bash", "-c", 'exec "$0" -m fairseq_plugins.cli 8>"$1"', sys.executable, str(answer)]
    subprocess.run(command, env={**os.environ, **asked}, check=True, cwd=place)
    return {word.strip() for word in answer.read_text().split("\n") if word}


@pytest.mark.parametrize("lines", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["fast", "slow"])
def test_commands_and_options_are_completed(lines: dict[str, set[str]], tmp_path: Path) -> None:
    assert {line: completed(line, tmp_path) for line in lines} == lines


def test_nothing_is_imported_for_it_otherwise() -> None:
    ended = processes.python("-X", "importtime", "-m", "fairseq_plugins.cli", "report", "--help")
    assert ended.code == 0
    assert "fairseq_plugins.options" in ended.errors
    assert "argcomplete" not in ended.errors
