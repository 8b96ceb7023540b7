"""``benchmarks/gpu.sh`` on the pretended GPU, at toy size: every table, and the training from raw text to BLEU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.tools.cli.main import main
from tests import toy
from tests.benchmarks.test_run_all import BENCHMARKS, script

SMALL = "--layers 1 --width 64 --sentences 2 --length 3 --vocabulary 50"
FEW = f"{SMALL} --decoder-layers 1 --methods post_ln,admin"
CHANGES = "optimization.max_update=4 model.encoder_layers=1 model.decoder_layers=1 generation.beam=1"
TOY = {
    "step_time.py": f"{FEW} --together 1",
    "decode_time.py": f"{SMALL} --methods admin",
    "profile_cost.py": SMALL,
    "optimizer_time.py": "--layers 1 --width 64 --vocabulary 50",
    "output_and_loss.py": "--width 16 --sentences 2 --length 3 --vocabulary 50",
    "update_time.py": f"{FEW} --tokens 64 --rounds 1 --seconds 600",
    "training_to_bleu.py": f"--out training {CHANGES} generation.max_len_a=0 generation.max_len_b=8",
}
"""Arguments that override the sizes of a table."""
Rows = dict[str, list[list[str]]]
"""Row, column and value of each measurement."""
EVERY_PYTHON = """
import sys
from pathlib import Path

import fairseq.models.transformer  # compiles some of the functions that are replaced

from tests.gpu.pretend import gpu

if "pytest" not in sys.orig_argv:
    sys.argv += {toy}.get(Path(sys.argv[0]).name, "").split()
    sys.pretended = gpu()
    sys.pretended.__enter__()
"""
"""Code that Python runs when it starts, so that each process has the GPU; tests have one of their own."""


def rows_in(out: Path) -> Rows:
    found: Rows = {}
    for path in out.glob("*.tsv"):
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            machine, _, measurement, *cell = line.split("\t")
            assert machine == "Pretended GPU"
            found.setdefault(measurement, []).append(cell)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("only", ["optimizer", pytest.param("", marks=pytest.mark.long)])
def test_the_script(only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, out = tmp_path / "raw", tmp_path / "gpu"
    toy.write_sentences(raw)
    for name, of_multi30k in (("valid", "val"), ("test", "test_2016_flickr")):
        for language in ("de", "en"):
            (raw / f"{name}.{language}").rename(raw / f"{of_multi30k}.{language}")
    sizes = {name: flags.replace("--out ", f"--out {tmp_path}/") for name, flags in TOY.items()}
    (tmp_path / "sitecustomize.py").write_text(EVERY_PYTHON.format(toy=sizes), encoding="utf-8")
    variables = {"PYTHON": sys.executable, "PYTHONPATH": f"{tmp_path}:{BENCHMARKS.parent}", "RAW": raw, "SIZE": 60}
    words = [BENCHMARKS / "gpu.sh", "--rounds", "1", "--out", out, *(["--only", only] if only else [])]
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run(
        [*words, "--", "--threads", "1"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = rows_in(out)
    assert found.keys() == ({only} if only else script("run_all", monkeypatch).GPU_TABLES.keys())
    assert not [name for name, rows in found.items() if any(column == "exit code" for _, column, _ in rows)]
    if not only:
        assert "1 process on GPU (Pretended GPU), fp16" in done.stderr
        rows = found["training"]
        assert any(re.match(r"sacreBLEU +\d", value) for _, _, value in rows)
        same = [(row, value) for row, column, value in rows if column == "same as stock's"]
        assert [row for row, _ in same] == ["fairseq's search", "lean search, float32", "lean search, float16"]
        assert same[1][1] == "100.0%"
        left_out = "Left out: ctranslate2-float32: --device gpu: this engine finds no GPU"
        assert any(value.startswith(left_out) for _, _, value in rows)


@pytest.mark.slow
def test_the_ten_minutes(toy_data: Path, tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "prepared"
    data.mkdir()
    (data / "data-bin").symlink_to(toy_data)
    (tmp_path / "sitecustomize.py").write_text(EVERY_PYTHON.format(toy=TOY), encoding="utf-8")
    variables = {
        "PYTHON": sys.executable,
        "PYTHONPATH": f"{tmp_path}:{BENCHMARKS.parent}",
        "REAL_GPU": "",
        "TESTS": "test_every_precision[--bf16]",
        "TRAINING": f"{' '.join(toy.TINY_MODEL)} --max-update 3 --max-tokens 2000",
    }
    words = [BENCHMARKS / "gpu.sh", "--minutes", "60", "--output", out, "--data", data]
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = rows_in(out)
    assert not [name for name, rows in found.items() if any("Stopped" in value for _, _, value in rows)]
    assert any("1 passed" in value for _, _, value in found["equality"])
    updates = [name for name in found if name.startswith("updates")]
    assert len(updates) == 8
    models = ["transformer", "post_ln", "post_ln, graphs", "admin", "admin, graphs"]
    for name in updates:
        assert [row for row, column, _ in found[name] if column == "median ms"] == models
        replayed = [(row, value) for row, column, value in found[name] if column == "replayed"]
        assert replayed == [(model, "yes") for model in models[2::2]]
    for sentences in (64, 512):
        searches = {row.rpartition(" ")[2] for row, _, _ in found[f"search_{sentences}"]}
        assert searches >= {"fairseq", "lean", "graphs"}
    for method in ("admin", "pre_ln"):
        assert "cuda graphs: 1 shapes" in (out / f"training_{method}.log").read_text(encoding="utf-8")
        assert any("BLEU" in value for _, _, value in found[f"bleu_{method}"])


@pytest.mark.slow
def test_the_study_of_depth_trains_nothing_twice(tmp_path: Path) -> None:
    raw, data, state = tmp_path / "raw", tmp_path / "data", tmp_path / "state"
    toy.write_sentences(raw)
    sets = [f"--{name}={raw}/{name}" for name in ("train", "valid")]
    tests = ["--test", *(f"{name}={raw}/test" for name in ("test", "multi30k"))]
    assert main(["prepare", str(data), "--source", "de", "--target", "en", "--size", "60", *sets, *tests]) == 0
    (tmp_path / "sitecustomize.py").write_text(EVERY_PYTHON.format(toy={}), encoding="utf-8")
    variables = {"PYTHON": sys.executable, "PYTHONPATH": f"{tmp_path}:{BENCHMARKS.parent}", "UPDATES": "100"}
    more = "generation.max_len_a=0 lr_scheduler.warmup_updates=0 checkpoint.save_interval_updates=30"
    variables |= {"METHODS": "pre_ln", "DEPTHS": "6e6d", "CHANGES": f"{CHANGES.partition(' ')[2]} {more}"}
    words = [BENCHMARKS / "gpu_study.sh", "--minutes", "60", "--state", state, "--data", data]
    for _ in range(2):
        done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = [line.split("\t")[:5] for line in (state / "results.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    assert [row[1:] for row in rows[:3]] == [["sweep", "1", rate, "20"] for rate in ("0.0005", "0.001", "0.002")]
    assert [row[:3] for row in rows[3:]] == [["pre_ln_6e6d", "full", "1"]]
    head, cell = (state / "cells.tsv").read_text(encoding="utf-8").splitlines()
    found = dict(zip(head.split("\t"), cell.split("\t"), strict=True))
    assert found["config"] == "pre_ln_6e6d"
    assert float(found["rate"]) in (0.0005, 0.001, 0.002)
    assert (found["updates"], found["seeds"], found["learnt"]) == ("100", "1", "1")
    assert len((state / "sweep.tsv").read_text(encoding="utf-8").splitlines()) == 1 + 3
    log = state / "runs/pre_ln_6e6d" / "-".join(rows[3][1:4]) / "train.log"
    assert re.search(r"cuda graphs: [1-9]\d* shapes", log.read_text(encoding="utf-8"))
