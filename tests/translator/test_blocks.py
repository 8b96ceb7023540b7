"""A file translated in blocks: every line once and in order, whoever stops, and the same command goes on."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from fairseq_plugins.lines import read_lines
from fairseq_plugins.tools.translator.blocks import Blocks, part_of, translate_missing
from fairseq_plugins.tools.translator.translate import Translator, main
from tests.refusals import refused
from tests.translator.conftest import Made

ROOT = Path(__file__).resolve().parents[2]
TEXT = [f"line {number}" for number in range(23)]


def upper(groups: Iterator[list[str]]) -> Iterator[list[str]]:
    return ([line.upper() for line in group] for group in groups)


def written(path: Path, lines: list[str]) -> Path:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)
    return path


@pytest.mark.parametrize("end", ["", ".gz"])
def test_parts_in_any_order_make_the_whole(tmp_path: Path, end: str) -> None:
    source, output = written(tmp_path / f"in{end}", TEXT), tmp_path / f"out{end}"
    blocks = Blocks(source, output, {"beam": 5}, lines=4)
    assert [number for number, _ in blocks.missing()] == [0, 1, 2, 3, 4, 5]
    assert [number for number, _ in blocks.missing(1, 3)] == [1, 4]
    assert not translate_missing(blocks, upper, (2, 3), group=3)
    assert not translate_missing(blocks, upper, (0, 3), group=100)
    assert not output.exists()
    assert [number for number, _ in blocks.missing()] == [1, 4]
    blocks.file(0).with_name("0000000.elsewhere.7").write_text("what a killed job has left\n")
    assert translate_missing(Blocks(source, output, {"beam": 5}, lines=4), upper, (0, 1), group=1)
    assert list(read_lines(output)) == [line.upper() for line in TEXT]
    assert sorted(path.name for path in blocks.directory.iterdir()) == [".lock", "settings"]
    before = output.stat().st_mtime_ns
    assert translate_missing(blocks, upper, (0, 1), group=1)
    assert output.stat().st_mtime_ns == before


def test_a_stopped_job_repeats_only_the_block_that_it_had(tmp_path: Path) -> None:
    blocks = Blocks(written(tmp_path / "in", TEXT), tmp_path / "out", {}, lines=5)
    seen: list[str] = []

    def stopping(groups: Iterator[list[str]]) -> Iterator[list[str]]:
        for group in groups:
            seen.extend(group)
            if "line 12" in group:
                raise KeyboardInterrupt
            yield group

    with pytest.raises(KeyboardInterrupt):
        translate_missing(blocks, stopping, (0, 1), group=1)
    assert sorted(path.name for path in blocks.directory.glob("0*")) == ["0000000", "0000001"]
    assert [number for number, _ in blocks.missing()] == [2, 3, 4]


def test_what_would_be_lost_or_mixed_is_refused(tmp_path: Path) -> None:
    source, output = written(tmp_path / "in", TEXT), tmp_path / "out"
    blocks = Blocks(source, output, {"beam": 5}, lines=10)
    said = refused(Blocks, source, output, {"beam": 4}, lines=10)
    assert said.startswith(f"{blocks.directory} was made with other settings (beam=4; was beam=5)")
    other = written(tmp_path / "other", ["x"])
    for text, weights, what in ((other, "1", "INPUT"), (source, "2", "MODEL"), (other, "2", "INPUT and MODEL")):
        Blocks(source, tmp_path / "two", {"weights": "1"})
        made = f"{tmp_path}/two.blocks: fairseq-deep translate has begun there with another {what}"
        line = f"{made}; delete it and {tmp_path}/two, or choose another OUTPUT"
        assert refused(Blocks, text, tmp_path / "two", {"weights": weights}) == line
    assert "exists, and" in refused(Blocks, source, written(tmp_path / "mine", ["x"]), {})
    assert "the output is also an input" in refused(Blocks, source, source, {})
    for number in range(3):
        blocks.write(number, ["a"])
    assert refused(blocks.join) == f"{blocks.file(0)}: 1 lines instead of 10; delete it, and repeat"
    assert not output.exists()
    assert part_of("3/7") == (2, 7)
    for wrong in ("0/7", "8/7", "3", "a/b", "-1/2"):
        with pytest.raises(ValueError, match=wrong):
            part_of(wrong)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_where_a_disk_has_no_locks_two_machines_join_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("fairseq_plugins.tools.translator.blocks.locked", lambda path: nullcontext())
    source, output = written(tmp_path / "in", TEXT), tmp_path / f"out{end}"
    first, second = (Blocks(source, output, {}, lines=5) for _ in range(2))
    monkeypatch.setattr(second, "_own", lambda number: second.file(number).with_name(f"{number:07d}.elsewhere.7"))
    for number, lines in first.missing():
        first.write(number, lines)
    write = first._write_whole

    def late(path: Path, lengths: Sequence[int]) -> None:
        assert second.join()
        write(path, lengths)

    monkeypatch.setattr(first, "_write_whole", late)
    assert first.join()
    assert list(read_lines(output)) == TEXT
    assert sorted(path.name for path in first.directory.iterdir()) == ["settings"]


@pytest.mark.parametrize("after", [0, 2])
def test_a_job_that_was_taken_for_dead_ends_with_the_output_of_the_other(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other joins when the job has translated so many of the five lines of its last block."""
    source, output = written(tmp_path / "in", TEXT[:5]), tmp_path / "out"
    slow, other = (Blocks(source, output, {}, lines=5) for _ in range(2))
    monkeypatch.setattr(other, "_own", lambda number: other.file(number).with_name(f"{number:07d}.elsewhere.7"))

    def overtaken(groups: Iterator[list[str]]) -> Iterator[list[str]]:
        for number, group in enumerate(groups):
            if number == after:
                assert translate_missing(other, upper, (0, 1), group=5)
            yield [line.upper() for line in group]

    assert translate_missing(slow, overtaken, (0, 1), group=1)
    assert list(read_lines(output)) == [line.upper() for line in TEXT[:5]]
    assert {path.name for path in slow.directory.iterdir()} == {"settings", ".lock"}


def test_a_text_that_is_read_only_once_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is read more than once" in refused(Blocks, tmp_path / "pipe", tmp_path / "out", {})
    source = written(tmp_path / "in", TEXT)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert refused(Blocks, source, Path("."), {}) == ".: a directory; OUTPUT is a file"


def test_the_command_and_a_job_array_write_what_translate_prints(
    made: Made, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    source = made.data / "raw" / "test.de"
    assert main([str(made.package), str(source)]) == 0
    printed = capfdbinary.readouterr().out
    words = [str(made.package), str(source), "--output", str(tmp_path / "out"), "--block", "7", "--buffer", "3"]
    assert main([*words, "--part", "2/2"]) == 0
    assert b"other parts are not translated yet" in capfdbinary.readouterr().err
    array = {"SLURM_ARRAY_TASK_ID": "4", "SLURM_ARRAY_TASK_MIN": "4", "SLURM_ARRAY_TASK_COUNT": "2"}
    script = [str(ROOT / "scripts" / "translate_slurm.sh"), *words[:2], words[3], *words[4:]]
    environment = {**os.environ, **array, "PYTHON": sys.executable, "FAIRSEQ_DEEP": str(ROOT)}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        f"{tmp_path}/out: {len(printed.splitlines())} lines",
    ), done.stderr
    assert (tmp_path / "out").read_bytes() == printed
    for wrong, message in (
        (["--part", "1/2"], "--part: needs --output FILE"),
        (["--output", str(tmp_path / "out"), "--part", "5/2"], "--part 5/2: not of the form K/N"),
    ):
        assert main([*words[:2], *wrong]) == 2
        assert message in capfdbinary.readouterr().err.decode()


def test_a_command_that_is_interrupted_says_that_it_continues(made: Made, tmp_path: Path) -> None:
    source = written(tmp_path / "in", ["x y z"] * 100_000)
    words = ["translate", made.package, source, "--output", tmp_path / "out", "--block", "5", "--buffer", "5"]
    command = [sys.executable, "-m", "fairseq_plugins.tools.cli", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None and not (tmp_path / "out.blocks" / "0000001").exists():
            time.sleep(0.02)
        job.terminate()
        assert job.stderr is not None
        assert job.stderr.read().endswith("\ninterrupted; the same command continues where this one stopped\n")
    assert job.returncode == 130
    assert not list((tmp_path / "out.blocks").glob("*.partial"))


def test_a_translator_can_be_sent_to_another_process(made: Made) -> None:
    translator = Translator(made.package, beam=3, device="cpu")
    copy = pickle.loads(pickle.dumps(translator))
    assert str(copy) == str(translator)
    assert copy.settings == translator.settings
    lines = (made.data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()[:5]
    assert copy.translate(lines) == translator.translate(lines)


@pytest.mark.slow
def test_ray_loses_and_repeats_no_line_when_a_worker_is_killed(made: Made, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'fairseq-deep[ray]'")
    lines = (made.data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    source = written(tmp_path / "in.gz", lines * 20)
    program = (ROOT / "examples" / "translate_with_ray.py").read_text(encoding="utf-8")
    # The first worker that reaches the third block dies there, once.
    killed = tmp_path / "killed"
    before = '        lines = self.blocks.read(row["block"])\n'
    dies = f"        import os\n        if row['block'] == 2 and not os.path.exists({str(killed)!r}):\n"
    dies += f"            open({str(killed)!r}, 'w').close()\n            os._exit(1)\n"
    assert before in program
    (tmp_path / "program.py").write_text(program.replace(before, dies + before), encoding="utf-8")
    words = [made.package, source, tmp_path / "out", "--block", "30", "--workers", "2", "--cpus", "0.5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert killed.exists()
    [once] = {tuple(line.text for line in Translator(made.package, device="cpu").translate(lines))}
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == list(once) * 20
    shutil.rmtree(tmp_path / "out.blocks")
