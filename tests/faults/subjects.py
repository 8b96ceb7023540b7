"""The commands that are hit, and what each must have made when it is through."""

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.integrity import num_updates, read_checkpoint
from tests.faults.exact import differences, state_of
from tests.scripts import test_train

UPDATES = 45
TINY = (
    *test_train.TINY,
    f"optimization.max_update={UPDATES}",
    "checkpoint.save_interval_updates=4",
    "checkpoint.keep_interval_updates=3",
)
POLYNOMIAL = ("lr_scheduler._name=polynomial_decay", f"+lr_scheduler.total_num_update={UPDATES}")
LAST = "checkpoints/checkpoint_last.pt"
NOT_COMPARED = (".lock", "train.log", "preprocess.log", "recorder.jsonl")
VARYING = re.compile(rb"commit:\S+")
"""The commit, which a change of this checkout changes."""
UNFINISHED = (".partial", ".tmp", ".before", ".new.json")


def files_of(place: Path) -> dict[str, Path]:
    """Every file below ``place`` except locks, by its name there; a file may go while this looks."""
    paths = [path for path in sorted(place.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {path.relative_to(place).as_posix(): path for path in paths}


def is_unfinished(name: str) -> bool:
    """Whether a name, or that of a directory above, is one under which something is being written."""
    return any(part.endswith(UNFINISHED) for part in name.split("/"))


@dataclass
class Subject:
    """A command: its words, from the directory of its inputs and that of its result, and whose results it needs."""

    name: str
    words: Callable[[Path, Path], Sequence[str]]
    needs: tuple[str, ...] = ()

    def torn(self, place: Path, whole: Path) -> Iterator[str]:
        """Files that stand under their final name and are not whole; ``whole`` is the undisturbed result."""
        for name, path in files_of(place).items():
            same = whole / name
            if not is_unfinished(name) and same.is_file() and path.name not in NOT_COMPARED:
                if _content(path) != _content(same):
                    yield f"{name} is not whole"

    def wrong(self, place: Path, whole: Path) -> Iterator[str]:
        """Differences between two results."""
        found, expected = files_of(place), files_of(whole)
        yield from (f"{name} is too many" for name in found.keys() - expected.keys())
        yield from (f"{name} is missing" for name in expected.keys() - found.keys())
        yield from self.torn(place, whole)

    def progress(self, place: Path) -> int:
        """How far it has come; never less than before."""
        return 0


class Training(Subject):
    """``fairseq-deep run``; its checkpoints are compared by their weights, moments and positions."""

    def __init__(self, name: str, *changes: str, processes: int = 1) -> None:
        how = ["lr_scheduler.warmup_updates=20", *changes, "--processes", str(processes), "--quiet"]
        given = ["run", str(test_train.ADMIN)]
        super().__init__(name, lambda data, place: [*given, f"{data}/prepared", str(place), *TINY, *how], ("prepared",))
        self.processes = processes

    def torn(self, place: Path, whole: Path) -> Iterator[str]:
        """Checkpoints without an end, records that are no JSON."""
        for name, path in files_of(place).items():
            if path.suffix == ".pt" and not zipfile.is_zipfile(path):
                yield f"{name} is not whole"
            if path.name in ("run.json", "finished"):
                try:
                    json.loads(path.read_text())
                except ValueError:
                    yield f"{name} is not JSON"

    def wrong(self, place: Path, whole: Path) -> Iterator[str]:
        """Differences between two trainings that have ended."""
        yield from super().wrong(place, whole)
        found, expected = files_of(place), files_of(whole)
        for name in found.keys() & expected.keys():
            if name.endswith(".pt"):
                different = differences(state_of(expected[name]), state_of(found[name]))
                yield from (f"{name}: {part} differs" for part in different[:1])
            elif name == "finished" and found[name].read_text() != expected[name].read_text():
                yield f"{name}: {found[name].read_text().strip()}"
        recorder = "checkpoints/recorder.jsonl"
        if recorder in found and found[recorder].read_bytes() != expected[recorder].read_bytes():
            yield f"{recorder} differs"

    def progress(self, place: Path) -> int:
        """Updates in the checkpoint that it would continue from."""
        last = place / LAST
        return num_updates(read_checkpoint(last)) or 0 if last.is_file() else 0


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return VARYING.sub(b"", content) if path.name == "signature" else content


def _prepare(inputs: Path, place: Path) -> Sequence[str]:
    sets = [f"--train={inputs}/text/train", "--valid=every-11th", f"--test=test={inputs}/text/test"]
    settings = ["--size", "60", "--lower-case", "1", "--workers", "1", "--vocabulary-threshold", "2"]
    return ["prepare", str(place), *sets, *settings]


def _evaluate(inputs: Path, place: Path) -> Sequence[str]:
    flags = ["--average", "last-updates=3", "--beam", "2", "--metrics", "sacrebleu,chrf"]
    return ["evaluate", str(inputs / "fp32"), str(inputs / "prepared"), "--output", str(place), *flags]


def _package(inputs: Path, place: Path) -> Sequence[str]:
    return ["package", str(inputs / "fp32"), str(place), "--data", str(inputs / "prepared"), "--force"]


DIAGNOSTICS = ("criterion._name=label_smoothed_cross_entropy_with_diagnostics", "+criterion.diagnostics_interval=3")
EMA = ("+ema.store_ema=true", "+ema.ema_fp32=true", "+ema.ema_decay=0.9", "optimizer._name=foreach_adam")
SUBJECTS: Mapping[str, Subject] = {
    subject.name: subject
    for subject in (
        Subject("prepared", _prepare),
        Training("fp32"),
        Training("amp", *DIAGNOSTICS, "+criterion.divergence_action=skip", "common.amp=true", *EMA),
        Training("bf16", "common.bf16=true", "optimizer._name=radam", *POLYNOMIAL),
        Training("two processes", "optimization.update_freq=[2]", processes=2),
        Subject("evaluation", _evaluate, ("prepared", "fp32")),
        Subject("package", _package, ("prepared", "fp32")),
    )
}
