"""The pipeline is hit at random moments: of a fixed seed, or of ``FAULTS_SEED=N`` in the environment."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.faults.campaign import LONGEST, Workshop
from tests.faults.commands import Job
from tests.faults.subjects import LAST, SUBJECTS

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="copies of a process cannot share a GPU")

SEED = int(os.environ.get("FAULTS_SEED", "1"))
STAGES = ("prepared", "evaluation", "package")
SLOW = (
    *((name, "full disk", 3) for name in STAGES),
    *((name, "kill", 3) for name in STAGES[1:]),
    *(("prepared", fault, 3) for fault in ("kill one", "terminate")),
    ("evaluation", "kill one", 3),
    ("fp32", "kill", 20),
    ("bf16", "kill", 3),
    ("amp", "kill one", 2),
    ("two processes", "kill one", 2),
    *(("fp32", fault, 2) for fault in ("terminate", "interrupt", "full disk")),
)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize(
    ("subject", "fault", "hits"),
    [("prepared", "kill", 4), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_a_command_that_is_hit(workshop: Workshop, subject: str, fault: str, hits: int) -> None:
    assert workshop.campaign(SUBJECTS[subject], fault, hits, SEED) == []


def wait_for(path: Path, job: Job) -> None:
    until = time.monotonic() + LONGEST
    while not path.exists():
        assert job.process.poll() is None, job.said()
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fp32", "two processes"])
def test_nothing_goes_on_without_the_command(workshop: Workshop, name: str, tmp_path: Path) -> None:
    """The process that ends is the command itself; then, of two that train together, torchrun, which started them."""
    subject = SUBJECTS[name]
    workshop.undisturbed(subject)
    for number in range(subject.processes):  # type: ignore[attr-defined]
        place = tmp_path / str(number)
        endless = f"optimization.max_update={10**6}"
        words = [endless if "max_update" in word else word for word in subject.words(workshop.inputs, place)]
        job = Job(words, tmp_path / "said")
        wait_for(place / LAST, job)
        job.send(signal.SIGKILL, job.processes()[number : number + 1])
        assert job.wait(LONGEST) is not None
        assert job.left_behind() == []
