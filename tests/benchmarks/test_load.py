"""The parts of the benchmark under load: which text it writes, what it calls memory, and the sizes it builds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fairseq import options

from tests.benchmarks.test_run_all import script


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("load", monkeypatch)


def test_memory_of_a_command_is_that_of_its_whole_tree(load: ModuleType, tmp_path: Path) -> None:
    size = 150_000_000
    inner = f"import time; kept = bytearray(b'x') * {size}; time.sleep(2)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}]); print('done')"
    found = load.measured([sys.executable, "-c", outer], tmp_path / "out")
    assert (found.code, (tmp_path / "out").read_text()) == (0, "done\n")
    assert size < found.memory < size + 100_000_000
    assert load.memory_of(os.getpid()) > 10**6


def test_the_flags_build_the_sizes_that_are_named(load: ModuleType) -> None:
    words = ["data", "--arch", "post_ln_transformer", *map(str, load.sizes_of(3, 16))]
    parsed = options.parse_args_and_arch(options.get_training_parser(), words)
    assert {name: getattr(parsed, name) for name in load.settings_of(3, 16)} == load.settings_of(3, 16)
