"""``--processes``: the same translations and score as from one process, each sentence once, in the test set's order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.scoring import bleu, build_scorer
from fairseq.scoring.bleu import SacrebleuConfig, SacrebleuScorer
from fairseq_cli import interactive

from fairseq_plugins.errors import UserError
from fairseq_plugins.search import processes
from fairseq_plugins.search.processes import add_counts, counts_of, environment, in_order
from tests import models, toy


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.binarise(tmp_path_factory.mktemp("toy"), {**toy.SIZES, "test": 11})


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("--max-update", "10", "--no-epoch-checkpoints")
    return toy.train_toy(data, tmp_path_factory.mktemp("run"), *flags, arch="admin_transformer")


def report(data: Path, checkpoint: Path, folder: Path, *flags: str) -> list[str]:
    toy.translate_toy(data, checkpoint, folder, "--batch-size", "3", *flags)
    lines = (folder / "generate-test.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line[:2] in ("S-", "T-", "H-", "D-", "P-") or line.startswith("Generate test")]


@pytest.mark.slow
@pytest.mark.parametrize("count", ["2", "6"])
def test_the_same_as_from_one_process(count: str, data: Path, checkpoint: Path, tmp_path: Path) -> None:
    """Six processes for four batches: two of them have nothing to do."""
    one = report(data, checkpoint, tmp_path / "one", "--nbest", "2")
    several = report(data, checkpoint, tmp_path / "several", "--nbest", "2", "--processes", count)
    sentences = in_order([one])
    assert sorted(sentences) == list(range(11))
    assert several == [line for lines in sentences.values() for line in lines] + one[-1:]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_they_end_with_a_killed_command(checkpoint: Path, tmp_path: Path) -> None:
    many = toy.binarise(tmp_path / "toy", {**toy.SIZES, "test": 400})
    endless = ("--batch-size", "1", "--min-len", "1000", "--max-len-b", "1010")  # 400,000 steps
    words = (str(many), "--path", str(checkpoint), "--cpu", "--processes", "2", *endless)
    program = [sys.executable, "-m", "fairseq_plugins.cli", "generate", *words]
    shares = tmp_path / "shares"
    shares.mkdir()
    there = {**os.environ, "TMPDIR": str(shares)}
    command = subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True, env=there)
    try:
        while len(list(shares.glob("*/*/generate-test.txt"))) < 2:  # opened before the model is loaded
            assert command.poll() is None
            time.sleep(0.05)
        command.kill()
        # The end of the output: no process holds it any more.
        command.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--processes", "0"), "--processes 0: a number of processes, at least 1"),
        (("--processes", "2", "--distributed-world-size", "2"), "both split the test set"),
    ],
)
def test_mistakes_are_refused(
    flags: tuple[str, ...], message: str, data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        report(data, checkpoint, tmp_path, *flags)


@pytest.mark.slow
def test_a_mistake_in_a_process_is_one_line(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown --decode-precision"):
        report(data, checkpoint, tmp_path, "--processes", "2", "--decode-precision", "int9")


def test_the_order_is_that_of_the_test_set() -> None:
    texts = [["S-2\ta", "H-2\t-1\tb", "INFO"], ["S-0\tc", "H-0\t-1\td", "E-0_1\te"]]
    found = list(in_order(texts).items())
    assert found == [(0, ["S-0\tc", "H-0\t-1\td", "E-0_1\te"]), (2, ["S-2\ta", "H-2\t-1\tb"])]


def test_a_sentence_of_two_processes_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="two processes translated sentence 3"):
        in_order([["H-3\t-1\ta"], ["S-1\tb", "H-3\t-1\ta"]])


def test_counts_add_up() -> None:
    """Two halves of a test set, and the whole, with fairseq's BLEU and sacreBLEU's."""
    words = models.dictionary()
    pairs = [(torch.tensor([4, 5, 6, 7, n]).int(), torch.tensor([4, 5, 6, 7, 8]).int()) for n in (8, 9, 10)]
    config = bleu.BleuConfig(pad=words.pad(), eos=words.eos(), unk=words.unk())
    whole, merged = bleu.Scorer(config), bleu.Scorer(config)
    for pair in pairs:
        whole.add(*pair)
    for half in (pairs[:1], pairs[1:]):
        scorer = bleu.Scorer(config)
        for pair in half:
            scorer.add(*pair)
        add_counts(merged, counts_of(scorer))
    assert merged.result_string() == whole.result_string()
    assert 0 < merged.score() < 100

    first, second = SacrebleuScorer(SacrebleuConfig()), SacrebleuScorer(SacrebleuConfig())
    first.add_string("a b c d", "a b c d")
    second.add_string("e f g h", "e f g x")
    add_counts(first, counts_of(second))
    assert (first.ref, first.pred) == (["a b c d", "e f g h"], ["a b c d", "e f g x"])
    assert type(build_scorer("bleu", words)) is bleu.Scorer


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert environment(1, 3, True, {}) == {"OMP_NUM_THREADS": "2"}
    assert environment(1, 3, True, {"OMP_NUM_THREADS": "5"}) == {"OMP_NUM_THREADS": "5"}


def test_processes_share_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [environment(rank, 3, False, {})["CUDA_VISIBLE_DEVICES"] for rank in range(3)] == ["0", "1", "0"]
    given = {"CUDA_VISIBLE_DEVICES": "4,6"}
    assert environment(1, 2, False, given) == {"CUDA_VISIBLE_DEVICES": "6"}


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    lines = ["H-0\t-0.5\ta\u2028b\x0bc\x85d\re", "P-0\t-0.1"]
    (tmp_path / "text").write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert in_order([processes.lines_of(tmp_path / "text")]) == {0: lines}
    (tmp_path / "text").write_bytes(b"")
    assert in_order([processes.lines_of(tmp_path / "text")]) == {}


def _report_blocked(path: Path) -> None:
    path.write_text(str(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def test_ctrl_c_does_not_reach_a_process_that_starts(tmp_path: Path) -> None:
    """Otherwise it prints a trace of whatever it imports at that moment."""
    process = multiprocessing.get_context("spawn").Process(target=_report_blocked, args=(tmp_path / "found",))
    processes._start_without_interrupts(process)
    process.join()
    assert (tmp_path / "found").read_text() == "True"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_interactive_translates_in_one(data: Path, checkpoint: Path) -> None:
    words = [str(data), "--path", str(checkpoint), "--cpu", "--processes", "2", "--input", os.devnull]
    parser = options.get_interactive_generation_parser()
    with pytest.raises(UserError, match="--processes splits a binarised test set"):
        interactive.main(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words)))
