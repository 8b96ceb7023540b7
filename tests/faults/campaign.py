"""Hit a command at random moments, give it again until it is through, and compare with an undisturbed one."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.commands import Job, import_what_is_slow
from tests.faults.hits import FAULTS, Fault, Running
from tests.faults.subjects import SUBJECTS, Subject, is_unfinished, remove, write_text

LONGEST = 120.0
"""Seconds after which a command hangs."""
BUSY = re.compile(r"in use by another job|another training is writing there")


@dataclass
class Outcome:
    """What has become of one subject under one fault.

    Args:
        hits: made.
        through: how often the command came to its end, and its result was compared.
        failures: what did not hold; empty if all did.
    """

    hits: int = 0
    through: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Undisturbed:
    """A result to compare with, and the seconds that it took."""

    place: Path
    seconds: float


class Workshop:
    """A directory with texts, the undisturbed results that were needed so far, and the one that is being hit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        import_what_is_slow()
        self.inputs = root / "inputs"
        write_text(self.inputs / "text")
        self._undisturbed: dict[str, Undisturbed] = {}

    def undisturbed(self, subject: Subject) -> Undisturbed:
        """Make the subject's inputs, and its result, once."""
        for name in subject.needs:
            made = self.undisturbed(SUBJECTS[name])
            if not (self.inputs / name).exists():
                shutil.copytree(made.place, self.inputs / name)
        if subject.name not in self._undisturbed:
            place, start = self.root / "undisturbed" / subject.name, time.monotonic()
            place.parent.mkdir(exist_ok=True)
            # By the same name: some results hold their own.
            code, said = self.run(subject)
            assert code == 0, said
            self._undisturbed[subject.name] = Undisturbed(place, time.monotonic() - start)
            os.rename(self.result(subject), place)
        return self._undisturbed[subject.name]

    def result(self, subject: Subject) -> Path:
        """Where the command makes its result."""
        return self.root / "hit" / subject.name.replace(" ", "-")

    def start(self, subject: Subject) -> Job:
        """Give the command."""
        place = self.result(subject)
        place.parent.mkdir(exist_ok=True)
        return Job(subject.words(self.inputs, place), self.root / "said")

    def run(self, subject: Subject) -> tuple[int, str]:
        """Give the command and wait for its end; again if a process of an earlier one has yet to end."""
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

    def campaign(self, subject: Subject, name: str, hits: int, seed: int) -> Outcome:
        """Hit one subject by one fault so many times."""
        outcome = Outcome()
        undisturbed = self.undisturbed(subject)
        remove(self.result(subject))
        chance = random.Random(f"{seed} {subject.name} {name}")
        try:
            while outcome.hits < hits:
                self._hit_one_run(subject, FAULTS[name], chance, outcome, undisturbed, hits)
            code, said = self.run(subject)
            if code:
                outcome.failures.append(f"exit code {code} without a hit: {said[-500:]}")
            self._compare(subject, outcome, undisturbed)
        except AssertionError as error:
            outcome.failures.append(str(error))
        remove(self.result(subject))
        return outcome

    def _hit_one_run(
        self, subject: Subject, fault: Fault, chance: random.Random, outcome: Outcome, whole: Undisturbed, hits: int
    ) -> None:
        """Give the command once, and hit it until it ends."""
        place, job = self.result(subject), self.start(subject)
        before, was_hit = subject.progress(place), False
        while outcome.hits < hits and _wait_for_moment(job, place, chance, whole.seconds):
            running = Running(subject, job, self.inputs, place, lambda: self.run(subject))
            heal = fault.hit(running, chance)
            outcome.hits, was_hit = outcome.hits + 1, True
            job.wait(fault.patience)
            heal()
        code = job.wait(LONGEST)
        problems = [f"still there: {name}" for name in job.left_behind()]
        said = job.said()
        problems += list(subject.torn(place, whole.place))
        if code is None:
            problems.append("hangs")
        elif code not in (fault.codes if was_hit else (0,)):
            problems.append(f"exit code {code}: {said[-500:]}")
        if "Traceback" in said:
            problems.append(f"a stack trace: {said[-1500:]}")
        if (after := subject.progress(place)) < before:
            problems.append(f"{after} updates, and {before} before")
        outcome.failures += [f"hit {outcome.hits}: {problem}" for problem in problems]
        if code == 0:
            self._compare(subject, outcome, whole)
            remove(place)

    def _compare(self, subject: Subject, outcome: Outcome, whole: Undisturbed) -> None:
        outcome.through += 1
        outcome.failures += list(subject.wrong(self.result(subject), whole.place))


def _wait_for_moment(job: Job, place: Path, chance: random.Random, seconds: float) -> bool:
    """Wait for a random moment, or for a file that is being written; false if the command ends before it."""
    until = time.monotonic() + chance.uniform(0.0, seconds)
    if chance.random() < 0.5:
        until += seconds
        while job.process.poll() is None and not any(_unfinished(place)) and time.monotonic() < until:
            time.sleep(0.001)
        return job.process.poll() is None
    return job.wait(max(0.0, until - time.monotonic())) is None


def _unfinished(place: Path) -> Iterator[str]:
    for _, directories, files in os.walk(place.parent):
        yield from (name for name in [*directories, *files] if is_unfinished(name))
