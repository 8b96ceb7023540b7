"""Every test shares this: one thread for each worker, seeded numbers, the real corpora where they are at hand."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before torch is imported, and inherited by the processes that tests start. More than one only shows that no result
# depends on it: models this small gain nothing from a second thread.
os.environ["OMP_NUM_THREADS"] = os.environ.setdefault("TEST_THREADS", "1")

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests import processes

# The scripts run with the Python of the tests, not with another environment in the clone or of make.
os.environ["PYTHON"] = sys.executable
# A shell starts what runs in the background with interrupts ignored, and everything below it would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No deadline: a busy machine is no defect. The same examples each time: a failure can be repeated.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.register_profile("fast", hypothesis.settings.get_profile("default"), max_examples=25)
hypothesis.settings.load_profile("default")

DATA = Path(os.environ.get("DEEP_NMT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def pytest_configure(config: pytest.Config) -> None:
    """Make a quarter of the examples where the slow tests are left out; prepare fairseq in the processes that test."""
    if config.option.markexpr == "not slow":
        hypothesis.settings.load_profile("fast")
    # The process that shares the tests among others runs none, and the others would wait for its imports.
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        import torch

        import fairseq_plugins  # noqa: F401  (patches fairseq and registers the methods)
        from tests import composing

        # The slow tests use Hydra's own compose, since the quick one rests on parts of Hydra that are private.
        if config.option.markexpr == "not slow":
            composing.install()
        torch.set_num_threads(int(os.environ["TEST_THREADS"]))
        # Loaders that Python collects as garbage have lost the way to end their processes, and wait for them in vain.
        torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1
        gc.set_threshold(50_000, 20, 100)  # a tenth of the time would go into looking for cycles
        # A fork has a copy of the pool without its threads, and would wait for them. So would CTranslate2, if what an
        # earlier test has let go of were collected there.
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
        os.register_at_fork(after_in_child=gc.freeze)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    import torch

    torch.manual_seed(1)


@pytest.fixture(autouse=True)
def _no_log_into_a_closed_stream() -> None:
    """Hydra leaves a handler for what was standard output in the test that called it."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if getattr(getattr(handler, "stream", None), "closed", False):
            root.removeHandler(handler)


@pytest.fixture(autouse=True)
def _log_levels_as_at_the_start() -> Iterator[None]:
    """Commands that a test called in this process may have made fairseq quiet; the next test may read its log.

    Afterwards too: fixtures of the next module are set up before this one is.
    """
    _forget_log_levels()
    yield
    _forget_log_levels()


def _forget_log_levels() -> None:
    logging.getLogger().setLevel(logging.INFO)
    for name in ("fairseq", "sacrebleu", "absl"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(params=["forked", pytest.param("spawned", marks=pytest.mark.slow)])
def ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks of a training in this test are copies of this process, and new ones in the slow tests."""
    from tests import processes

    if request.param == "forked":
        processes.fork_ranks(monkeypatch)


@pytest.fixture(params=["here", pytest.param("alone", marks=pytest.mark.slow)])
def fairseq_deep(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> processes.Command:
    """``fairseq-deep`` in this process, and in one of its own in the slow tests."""
    from tests import processes

    if request.param == "here":
        return processes.in_this_process(monkeypatch, capfd)
    return functools.partial(processes.python, "-m", "fairseq_plugins.tools.cli", cwd=tmp_path)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """The rate with which each update of a training is made, by the number of updates before it.

    The recipe of the toy corpus has no warm-up in this test.
    """
    from fairseq.trainer import Trainer

    from tests import toy

    warmup = toy.RECIPE.index("--warmup-updates")
    monkeypatch.setattr(toy, "RECIPE", toy.RECIPE[:warmup] + toy.RECIPE[warmup + 2 :])
    seen: dict[int, float] = {}
    train_step = Trainer.train_step

    def watch(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        before = trainer.get_num_updates()
        assert before not in seen
        (seen[before],) = {group["lr"] for group in trainer.optimizer.param_groups}
        return train_step(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", watch)
    return seen


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, where a program that is executed leaves a file."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def real_corpus() -> Callable[[str], Path]:
    """Directory of a real corpus by name, for instance ``multi30k``; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        directory = DATA / name
        if not directory.is_dir():
            pytest.skip(f"no corpus at {directory} (set DEEP_NMT_DATA to the directory that holds {name}/)")
        return directory

    return find


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The binarised toy corpus: 120 training, 20 validation, 60 test sentences."""
    from tests import toy

    return toy.binarise(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised text of characters; ``text/<split>.txt`` next to it is the text that was binarised."""
    from tests.language_model import text

    return text.binarise(tmp_path_factory.mktemp("characters"))


@pytest.fixture(scope="session")
def speech_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that fairseq's ``speech_to_text`` task can read."""
    from tests.speech_to_text import audio

    return audio.write(tmp_path_factory.mktemp("speech") / "data")
