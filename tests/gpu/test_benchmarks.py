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

from fairseq_plugins.translator import export
from tests.benchmarks.test_run_all import BENCHMARKS, script
from tests.gpu.pretend import on_gpu
from tests.translator.conftest import Made

SMALL = "--layers 1 --width 64 --sentences 2 --length 3 --vocabulary 50 --rounds 1".split()
FEW = [*SMALL, "--decoder-layers", "1", "--methods", "post_ln,admin", "--together", "1"]
TOY = {
    "step_time.py": FEW,
    "host_waits.py": FEW[:-2],
    "decode_time.py": [*SMALL, "--methods", "admin"],
    "profile_cost.py": SMALL,
    "optimizer_time.py": "--layers 1 --width 64 --vocabulary 50 --rounds 1".split(),
    "output_and_loss.py": "--width 16 --sentences 2 --length 3 --vocabulary 50 --rounds 1".split(),
    "engines_time.py": "--rounds 1".split(),
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
def test_engines_beside_each_other(made: Made, package: Path) -> None:
    """In both precisions of a GPU; CTranslate2 finds no pretended one, which is said and ends nothing."""
    pytest.importorskip("ctranslate2")
    assert export.main([str(package)]) == 0
    texts = (str(made.data / "raw" / f"test.{side}") for side in ("de", "en"))
    text = printed(["engines_time.py", str(package), *texts])
    stock, single, half = (line.split(" | ") for line in text.splitlines() if " search" in line and "%" in line)
    assert (stock[0], single[0], half[0]) == ("| fairseq's search", "| lean search, float32", "| lean search, float16")
    assert single[-2:] == stock[-2:]
    assert float(half[-2]) == pytest.approx(float(stock[-2]), abs=5)
    assert "Left out: ctranslate2-float32: --device gpu: this engine finds no GPU" in text


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
