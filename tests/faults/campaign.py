"""Hit a command at random moments, give it again until it is through, and compare with an undisturbed one."""

import os
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests import toy
from tests.faults.commands import Job, import_what_is_slow
from tests.faults.subjects import SUBJECTS, Subject, files_of, is_unfinished

LONGEST = 120.0
"""Seconds after which a command hangs."""
PATIENCE = 20.0
"""Seconds that a command may go on after a hit before the next one."""
BUSY = re.compile(r"in use by another job|another training is writing there")
Hit = Callable[[Job, Path, random.Random], None]
"""Does something to a command, given its processes and the place of its result."""


def kill_everything(job: Job, place: Path, chance: random.Random) -> None:
    """SIGKILL to all processes at once, as when the machine loses its power or a job its memory."""
    job.stop()  # otherwise a parent would notice the end of its child
    job.send(signal.SIGKILL)


def kill_one(job: Job, place: Path, chance: random.Random) -> None:
    """SIGKILL to one process, as of a system that is short of memory."""
    if processes := job.processes():
        job.send(signal.SIGKILL, [chance.choice(processes)])


def terminate(job: Job, place: Path, chance: random.Random) -> None:
    """SIGTERM to the command, as of a scheduler."""
    job.send(signal.SIGTERM, [job.process.pid])


def interrupt(job: Job, place: Path, chance: random.Random) -> None:
    """Ctrl-C: SIGINT to the processes of the terminal."""
    with suppress(ProcessLookupError):
        os.killpg(job.process.pid, signal.SIGINT)


def fill_disk(job: Job, place: Path, chance: random.Random) -> None:
    """No file can grow above a size, which is that of a file of the result, or less."""
    sizes = [0]
    for path in files_of(place).values():
        with suppress(FileNotFoundError):  # the command may have renamed it meanwhile
            sizes.append(path.stat().st_size)
    limit = int(chance.choice(sizes) * chance.random())
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for pid in job.processes():
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))


KILLED = -signal.SIGKILL
FAULTS: Mapping[str, tuple[Hit, tuple[int, ...]]] = {
    "kill": (kill_everything, (0, KILLED)),
    # A command ends with 137 where a process that it waits for was killed.
    "kill one": (kill_one, (0, 1, 2, KILLED, 137, 143)),
    "terminate": (terminate, (0, 130, -signal.SIGTERM)),
    "interrupt": (interrupt, (0, 130, -signal.SIGINT)),
    "full disk": (fill_disk, (0, 2)),
}
"""The faults by name: the action, and the exit codes of a command that was hit; 0 where it had ended before."""


class Workshop:
    """A directory with texts, the undisturbed results that were needed so far, and the one that is being hit."""

    def __init__(self, root: Path) -> None:
        self.root, self.inputs = root, root / "inputs"
        import_what_is_slow()
        toy.write_sentences(self.inputs / "text", {"train": 130, "test": 20}, longest=6)
        self._seconds: dict[str, float] = {}

    def undisturbed(self, subject: Subject) -> Path:
        """Make the subject's inputs, and its result, once."""
        place = self.root / "undisturbed" / subject.name
        for name in subject.needs:
            made = self.undisturbed(SUBJECTS[name])
            if not (self.inputs / name).exists():
                shutil.copytree(made, self.inputs / name)
        if not place.exists():
            start = time.monotonic()
            # The name stays the same: some results hold their own.
            code, said = self.run(subject)
            assert code == 0, said
            self._seconds[subject.name] = time.monotonic() - start
            place.parent.mkdir(exist_ok=True)
            os.rename(self.result(subject), place)
        return place

    def result(self, subject: Subject) -> Path:
        """Where the command makes its result."""
        return self.root / "hit" / subject.name.replace(" ", "-")

    def start(self, subject: Subject) -> Job:
        """Start the command that is to be hit."""
        place = self.result(subject)
        place.parent.mkdir(exist_ok=True)
        return Job(subject.words(self.inputs, place), self.root / "said")

    def run(self, subject: Subject) -> tuple[int, str]:
        """Start the command and wait for its end; again if a process of an earlier one has yet to end."""
        until = time.monotonic() + LONGEST
        while True:
            job = self.start(subject)
            code = job.wait(LONGEST)
            left = job.left_behind()
            said = job.said()
            if code is None or left:
                raise AssertionError(f"hangs: {left or said[-500:]}")
            if not BUSY.search(said) or time.monotonic() > until:
                return code, said

    def campaign(self, subject: Subject, name: str, hits: int, seed: int) -> list[str]:
        """Hit one subject by one fault so many times, then let it come to its end; what did not hold."""
        whole, place = self.undisturbed(subject), self.result(subject)
        shutil.rmtree(place, ignore_errors=True)
        chance = random.Random(f"{seed} {subject.name} {name}")
        failures: list[str] = []
        while hits:
            made, problems = self._hit_one_run(subject, name, chance, hits)
            hits -= made
            failures += problems
        code, said = self.run(subject)
        failures += [f"exit code {code} without a hit: {said[-500:]}"] if code else []
        failures += subject.wrong(place, whole)
        shutil.rmtree(place, ignore_errors=True)
        return failures

    def _hit_one_run(self, subject: Subject, name: str, chance: random.Random, hits: int) -> tuple[int, list[str]]:
        """Give the command once, and hit it until it ends, at most so many times; how often, and what did not hold."""
        (hit, codes), whole, place, made = FAULTS[name], self.undisturbed(subject), self.result(subject), 0
        before, job = subject.progress(place), self.start(subject)
        while made < hits and _wait_for_moment(job, place, chance, self._seconds[subject.name]):
            hit(job, place, chance)
            made += 1
            job.wait(PATIENCE)
        code = job.wait(LONGEST)
        problems = [f"still there: {process}" for process in job.left_behind()]
        said = job.said()
        problems += subject.torn(place, whole)
        if code not in (codes if made else (0,)):  # None where it hangs
            problems.append(f"exit code {code}: {said[-500:]}")
        if "Traceback" in said:
            problems.append(f"a stack trace: {said[-1500:]}")
        if (after := subject.progress(place)) < before:
            problems.append(f"{after} updates, and {before} before")
        if code == 0:
            problems += subject.wrong(place, whole)
            shutil.rmtree(place, ignore_errors=True)
        return made, problems


def _wait_for_moment(job: Job, place: Path, chance: random.Random, seconds: float) -> bool:
    """Wait for a random moment, or for a file that is being written; false if the command ends before it."""
    until = time.monotonic() + chance.uniform(0.0, seconds)
    if chance.random() < 0.5:
        until += seconds
        while job.process.poll() is None and time.monotonic() < until:
            if any(is_unfinished(name) for _, *names in os.walk(place.parent) for name in [*names[0], *names[1]]):
                break
            time.sleep(0.001)
        return job.process.poll() is None
    return job.wait(max(0.0, until - time.monotonic())) is None
