"""Processes of trainings: they end with it, have their addresses on CPUs, and are alone in their directory.

What two of them compute on CPUs is in ``tests/contract/test_two_processes.py``.
"""

import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fairseq import binarizer
from fairseq.data import dictionary
from fairseq.data.iterators import BufferedIterator
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches import cpu_processes, two_trainings_at_once
from fairseq_plugins.patches.two_trainings_at_once import claim
from tests import processes, toy
from tests.processes import Command

CHECKOUT = Path(__file__).resolve().parents[2]
LAUNCHER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-u", "-m", "fairseq_plugins.tools.cli", "hydra-train", "--help"]).wait()
"""
READING = """
import time
from collections.abc import Iterator
import torch
import fairseq_plugins
from fairseq_plugins.patches import batches_read_ahead
from fairseq.data.iterators import BufferedIterator

class Batches:
    def __len__(self):
        return 10**9

    def __iter__(self):
        while True:
            yield torch.rand(400_000).sort()

batches = BufferedIterator(SIZE, Batches())
print(next(batches).values.numel(), flush=True)
"""
WAITING = """
while not batches._queue.full():
    time.sleep(0.01)
time.sleep(0.5)  # until the next batch waits for room
began = time.monotonic()
batches_read_ahead.stop_reading()
print(time.monotonic() - began < batches_read_ahead.PATIENCE / 2, batches._consumer.is_alive())
"""
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")


@only_linux
def test_a_rank_that_still_imports_ends_with_torchrun(tmp_path: Path) -> None:
    """Else it would wait for the others for half an hour, and keep the directory of the run."""
    (tmp_path / "torch").mkdir()
    began = tmp_path / "began"
    (tmp_path / "torch" / "__init__.py").write_text(
        f"import os, time\nopen({str(began) + '.new'!r}, 'w').write(str(os.getpid()))\n"
        f"os.replace({str(began) + '.new'!r}, {str(began)!r})\ntime.sleep({2 * processes.LONGEST})\n"
    )
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])
    environment = {**os.environ, "PYTHONPATH": path, "TORCHELASTIC_RUN_ID": "none"}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environment, cwd=tmp_path)
    try:
        until = time.monotonic() + processes.LONGEST
        while not began.exists():
            assert launcher.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        launcher.kill()
        launcher.wait()
    assert processes.ends(int(began.read_text()))


@pytest.mark.parametrize(
    ("program", "printed"),
    [(READING.replace("SIZE", "1000"), ""), (READING.replace("SIZE", "1") + WAITING, "True False\n")],
    ids=["inside of torch", "waiting for room"],
)
def test_a_process_that_reads_ahead_ends_as_if_it_did_not(program: str, printed: str) -> None:
    """Without the patch the thread is inside torch's sort when Python stops it: exit code -6."""
    assert processes.python("-W", "ignore", "-c", program) == (0, "", f"400000\n{printed}")


def test_workers_of_preprocess_leave_ctrl_c_to_their_parent() -> None:
    for module, handler in ((binarizer, signal.SIG_IGN), (dictionary, signal.SIG_IGN), (multiprocessing, None)):
        with module.Pool(processes=1) as pool:
            assert pool.apply(signal.getsignal, (signal.SIGINT,)) == (handler or signal.default_int_handler)


def test_what_reads_ahead_hands_on_the_error_of_a_loader_that_cannot_start() -> None:
    """Else the training waits for ever."""
    unreadable = mock.MagicMock(__len__=mock.Mock(return_value=1), __iter__=mock.Mock(side_effect=OSError("no memory")))
    with pytest.raises(OSError, match="no memory"):
        next(BufferedIterator(2, unreadable))


TWO = ("--distributed-world-size", "2")
VARIABLES = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "WORLD_SIZE": "4", "RANK": "3"}


def test_the_address_of_the_processes(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def addressed(*flags: str) -> Any:
        settings = toy.parse_training(toy_data, tmp_path, *flags).distributed_training
        cpu_processes.address_processes(settings)
        return settings

    given = addressed("--distributed-init-method", "tcp://localhost:1234", "--distributed-backend", "mpi", *TWO)
    assert (given.distributed_init_method, given.distributed_backend) == ("tcp://localhost:1234", "mpi")
    for name, value in VARIABLES.items():
        monkeypatch.setitem(os.environ, name, value)
    rank = addressed()
    assert (rank.distributed_init_method, rank.distributed_backend) == ("env://", "gloo")
    assert (rank.distributed_world_size, rank.distributed_rank, rank.distributed_no_spawn) == (4, 3, True)
    # A launcher of one process, too, has fairseq join a group, and stock's nccl needs GPUs.
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "1")
    alone = addressed()
    assert (alone.distributed_init_method, alone.distributed_backend) == ("env://", "gloo")


def test_on_gpus_torchrun_counts_the_processes(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq looks for a launcher only where a training has several processes: each would train a model of its own."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    config = toy.parse_training(toy_data, tmp_path, "--distributed-world-size", "1")
    config.common.cpu = False
    settings = config.distributed_training

    def infer(*_: object) -> None:
        distributed_utils.infer_init_method(settings)

    for name, value in VARIABLES.items():
        monkeypatch.setitem(os.environ, name, value)
    cpu_processes.call_main_anywhere(infer, config, train.main)
    assert (settings.distributed_world_size, settings.distributed_rank, settings.device_id) == (4, 3, 3)


def test_an_update_that_lacks_a_batch(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 sentences are 7 batches: in the last update, the second process has one batch and an empty one."""
    processes.fork_ranks(monkeypatch)
    batches = ("--batch-size", "18", "--max-tokens", "400", "--required-batch-size-multiple", "1")
    flags = (*batches, "--dropout", "0", "--max-epoch", "1", "--optimizer", "sgd", "--clip-norm", "0")
    two = toy.parse_training(toy_data, tmp_path / "two", *flags, *TWO, "--update-freq", "2")
    distributed_utils.call_main(two, train.main)
    one = toy.weights_of(toy.train_toy(toy_data, tmp_path / "one", *flags, "--update-freq", "4"))
    for name, value in toy.weights_of(tmp_path / "two" / "checkpoint_last.pt").items():
        torch.testing.assert_close(value, one[name], rtol=1e-4, atol=1e-6, msg=name)


def test_logs_that_cannot_be_summed_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts its own in its place
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    logs = {"hypotheses": ["eins", "zwei"], "loss": 1.5}
    try:
        assert distributed_utils.all_gather_list([logs], group=dist.group.WORLD) == [[logs]]
    finally:
        dist.destroy_process_group()


FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def _none_before_and_after() -> Iterator[None]:
    two_trainings_at_once.release()
    yield
    two_trainings_at_once.release()


def _claim(directory: Path, claimed: Any, wait: bool) -> None:
    two_trainings_at_once._held.clear()  # a copy of the parent's; the lock is the parent's alone
    assert claim(directory) is None
    claimed.set()
    if wait:
        multiprocessing.Event().wait()


def claimed_by_a_child(directory: Path) -> bool:
    """Whether another process could begin a training in ``directory`` now."""
    process = FORK.Process(target=_claim, args=(directory, FORK.Event(), False))
    process.start()
    process.join()
    return process.exitcode == 0


def test_the_second_is_refused_until_the_first_is_killed(toy_data: Path, tmp_path: Path) -> None:
    claimed = FORK.Event()
    other = FORK.Process(target=_claim, args=(tmp_path, claimed, True), daemon=True)
    other.start()
    assert claimed.wait(60)
    try:
        with pytest.raises(UserError, match=r"another training is writing there; wait for it to end, or use another"):
            toy.train_toy(toy_data, tmp_path, "--max-update", "1")
        assert not (tmp_path / "checkpoint_last.pt").exists()
        toy.train_toy(toy_data, tmp_path, "--max-update", "1", "--no-save")
    finally:
        other.kill()
        other.join()
    assert toy.train_toy(toy_data, tmp_path, "--max-update", "1").exists()


def test_a_training_gives_its_directory_up_at_its_end(toy_data: Path, tmp_path: Path) -> None:
    def main(cfg: Any) -> None:
        train.main(cfg)
        assert not claimed_by_a_child(tmp_path)

    distributed_utils.call_main(toy.parse_training(toy_data, tmp_path, "--max-update", "1"), main)
    assert claimed_by_a_child(tmp_path)


def test_a_process_may_train_again_and_elsewhere(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert [claim(tmp_path / name) for name in ("a", "a", "b", "a")] == [None] * 4
    assert not claimed_by_a_child(tmp_path / "a")
    assert claimed_by_a_child(tmp_path / "b")


def test_a_directory_without_locks(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fcntl, "lockf", mock.Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    with caplog.at_level(logging.WARNING, logger=two_trainings_at_once.__name__):
        assert claim(tmp_path) is None
    assert f"{tmp_path} cannot be locked (No locks available)" in caplog.text


def test_a_lock_that_cannot_be_opened_ends_every_process(toy_data: Path, tmp_path: Path, fairseq_deep: Command) -> None:
    """The others wait for the first one, which alone locks: it tells them instead of ending."""
    (tmp_path / ".lock").mkdir()
    flags = ["--arch", "transformer", *toy.TINY_MODEL, *toy.RECIPE, "--max-update", "1", "--disable-validation"]
    two = ["--distributed-world-size", "2", "--save-dir", str(tmp_path)]
    ended = fairseq_deep("train", str(toy_data), *flags, *two)
    assert (ended.code, ended.error) == (2, f"error: {tmp_path}/.lock: Is a directory")
    assert claim(tmp_path) == f"{tmp_path}/.lock: Is a directory"
