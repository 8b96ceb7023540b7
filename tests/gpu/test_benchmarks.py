"""``benchmarks/gpu.sh`` on the pretended GPU, at toy size: every table is made, and written as soon as it is."""

from __future__ import annotations

import argparse
import contextlib
import io
import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from tests.benchmarks.test_run_all import BENCHMARKS, script
from tests.gpu.pretend import on_gpu

SMALL = "--layers 1 --width 64 --sentences 2 --length 3 --vocabulary 50 --rounds 1".split()
FEW = [*SMALL, "--decoder-layers", "1", "--methods", "post_ln,admin", "--together", "1"]
TOY = {
    "step_time.py": FEW,
    "host_waits.py": FEW[:-2],
    "decode_time.py": [*SMALL, "--methods", "admin"],
    "profile_cost.py": SMALL,
    "optimizer_time.py": "--layers 1 --width 64 --vocabulary 50 --rounds 1".split(),
    "output_and_loss.py": "--width 16 --sentences 2 --length 3 --vocabulary 50 --rounds 1".split(),
}
"""What overrides the sizes of a table."""


def printed(words: Sequence[str]) -> str:
    """What a benchmark prints in a process with a GPU."""

    def run() -> str:
        output = io.StringIO()
        path = BENCHMARKS / Path(words[0]).name
        argv, where = [str(path), *words[1:], *TOY[path.name]], [str(BENCHMARKS), *sys.path]
        with mock.patch.object(sys, "argv", argv), mock.patch.object(sys, "path", where), warnings.catch_warnings():
            with contextlib.redirect_stdout(output):
                runpy.run_path(str(path), run_name="__main__")
        return output.getvalue()

    text: str = on_gpu(run)
    return text


@pytest.mark.slow
@pytest.mark.long
def test_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_all = script("run_all", monkeypatch)
    # A training in new processes would not see the pretended GPU.
    tables = {name: table for name, table in run_all.GPU_TABLES.items() if name != "training"}
    titles, done = [table.title for table in tables.values()], []

    def output(words: Sequence[str]) -> str:
        # What was made before is in the file, if the next table is cut.
        written = out.read_text(encoding="utf-8") if done else ""
        assert [line[3:] for line in written.splitlines() if line.startswith("## ")] == done
        done.append(titles.pop(0))
        return printed(words)

    out = tmp_path / "gpu.md"
    args = argparse.Namespace(rounds=1, out=out, more=[])
    assert run_all.make(tables, args, output) == []
    text = out.read_text(encoding="utf-8")
    assert text.count("Pretended GPU, torch") == len(tables) + 1  # the profile has a line for each clock
    assert "Failed" not in text
