"""The files with every table of speed: their rows, commands and failures, with made-up times."""

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TIMES = {
    "transformer": [{"wall": wall, "processor": 2 * wall} for wall in (1.0, 2.0, 4.0, 8.0)],
    "admin_transformer": [{"wall": wall, "processor": wall} for wall in (0.5, 1.5, 2.0, 8.0)],
}


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_all(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("run_all", monkeypatch)


def test_a_table_has_medians_and_quartiles_of_ratios_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ratios of the four rounds: 0.5, 0.75, 0.5, 1 by the clock and half of that by the processor.
    assert script("common", monkeypatch).table(TIMES).splitlines() == [
        "| arch | wall ratio (quartiles) | processor ratio (quartiles) | median s |",
        "|---|---|---|---|",
        "| transformer | 1.000 (1.000 to 1.000) | 1.000 (1.000 to 1.000) | 3.000 |",
        "| admin_transformer | 0.625 (0.500 to 1.000) | 0.312 (0.250 to 0.500) | 1.750 |",
    ]


def test_the_files(run_all: ModuleType, tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []

    def rows_of(kind: str) -> list[list[str]]:
        return [line.split("\t") for line in (tmp_path / f"{kind}.tsv").read_text(encoding="utf-8").splitlines()]

    def output(arguments: Sequence[str]) -> Iterator[str]:
        asked.append(arguments)
        if "optimizer" in arguments[0]:
            yield "What came\tbefore.\n"
            raise subprocess.CalledProcessError(3, "python")
        yield from "A machine; 2 rounds\n\n| arch | to stock | note |\n|---|---:|---|\n| x | 0.5 | |\n".splitlines()
        assert rows_of("output_and_loss")[-1][3:] == ["x", "to stock", "0.5"]  # if the next is cut, this is kept
        yield from "\n| clock | s |\n| --- | --- |\n| wall | 1 |\n".splitlines()

    tables = {name: run_all.CPU_TABLES[name] for name in ("loss", "optimizer")}
    args = argparse.Namespace(rounds=2, out=tmp_path, more=["--threads", "2"], gpu=False)
    assert run_all.make(tables, args, output) == ["optimizer"]
    rounds = ["--rounds", "2", "--threads", "2"]
    assert asked == [["benchmarks/output_and_loss.py", *rounds], ["benchmarks/optimizer_time.py", *rounds]]
    header, *rows = rows_of("output_and_loss")
    assert tuple(header) == run_all.COLUMNS
    assert rows[0][2:] == ["loss", "", "command", "python benchmarks/output_and_loss.py --rounds 2 --threads 2"]
    assert [row[4] for row in rows[1:6]] == ["processor", "flags", "cores", "versions", "date"]
    numbers = [["x", "to stock", "0.5"], ["wall", "s", "1"]]
    assert [row[3:] for row in rows[6:]] == [["", "", "A machine; 2 rounds"], *numbers]
    assert {row[0] for row in rows} == {run_all.description(gpu=False)["machine"]}
    ends = [["", "", "What came before."], ["", "exit code", "3"]]
    for times in (1, 2):  # the second time comes below the first
        assert [row[3:] for row in rows_of("optimizer_time")[-2:]] == ends
        assert len(rows_of("optimizer_time")) == 1 + 8 * times
        run_all.make(tables, args, output)


def test_every_script_takes_its_arguments(run_all: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Read(Exception):
        pass

    parse, methods = argparse.ArgumentParser.parse_args, set(script("common", monkeypatch).METHODS)

    def parse_and_stop(parser: argparse.ArgumentParser, *args: object) -> None:
        flags = parse(parser, *args)  # type: ignore[call-overload]
        assert set(getattr(flags, "methods", "").split(",")) - {""} <= methods
        raise Read

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    for table in (*run_all.CPU_TABLES.values(), *run_all.GPU_TABLES.values()):
        monkeypatch.setattr(sys, "argv", run_all.command(table, 1, ["--threads", "2"]))
        with pytest.raises(Read):
            script(table.script.removesuffix(".py"), monkeypatch).main()
