"""The watched logs: their files, their names, and the run of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.pipeline.fairseq_log import LogReader
from fairseq_plugins.pipeline.run import LOG, SETTINGS, Run, read_run, short_names

LOGS = (LOG, "hydra_train.log")
"""Names of a log inside a directory, from ``scripts/train.sh`` and from ``fairseq-hydra-train``."""
FLAGS = "--log-format json --log-file FILE (common.log_format=json common.log_file=FILE in YAML)"


@dataclass
class Watched:
    """A log with a short name."""

    name: str
    reader: LogReader

    @property
    def path(self) -> Path:
        """The file."""
        return self.reader.path

    def poll(self) -> Run:
        """Read the new records, and return what is known of the run.

        Raises:
            UserError: the file is not a log, or its records are not JSON.
        """
        log = self.reader.poll()
        if not log.updates:
            _refuse_what_never_will_be_read(self.path, log.as_text or log.done)
        if (self.path.parent / SETTINGS).exists():
            return read_run(self.path.parent, log)
        ended = {"num_updates": log.updates} if log.done else None
        return Run(self.path.parent, {}, ended, log, {}, ())


def _refuse_what_never_will_be_read(path: Path, has_other_records: bool) -> None:
    if has_other_records:
        raise UserError(f"{path}: no JSON record in it; train with {FLAGS}")
    try:
        with open(path, "rb") as stream:
            start = stream.read(1 << 16)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    # The last one is the beginning of the configuration, the first line of --log-file.
    if b"\n" in start and not any(sign in start for sign in (b"INFO", b"WARN", b"{'_name'")):
        raise UserError(f"{path}: not a log of fairseq; {FLAGS} makes one")


def find_logs(paths: Sequence[Path]) -> list[Path]:
    """Return the logs among ``paths`` and in or below their directories, each once.

    Raises:
        UserError: a path is absent, or there is no log below it.
    """
    found: dict[Path, Path] = {}
    problems = []
    for path in paths:
        logs = _logs_of(path)
        if not logs:
            problems.append(_absent(path))
        for log in logs:
            found.setdefault(log.resolve(), log)
    if problems:
        raise UserError(problems)
    return list(found.values())


def _logs_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.exists() else []
    own = [path / name for name in LOGS if (path / name).is_file()]
    return own[:1] or sorted(log for name in LOGS for log in path.rglob(name) if log.is_file())


def _absent(path: Path) -> str:
    if path.is_dir():
        return f"{path}: no {' or '.join(LOGS)} in it or below it"
    try:
        beside = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"{path}: no such file or directory"
    return f"{path}: no such file or directory{nearest(path.name, beside)}"


def names(logs: Sequence[Path]) -> list[str]:
    """Return a short name for each log: its run's directory (or its own name), relative to their common parent."""
    # A log with a specific name keeps it; train.log is not specific, so it is named after its directory.
    places = [log.absolute().parent if log.name in LOGS else log.absolute() for log in logs]
    if len(set(places)) < len(places):
        places = [log.absolute() for log in logs]
    return short_names(places)


class Watch:
    """All logs below some paths, including those that appear later."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._readers: dict[Path, LogReader] = {}

    def poll(self) -> list[tuple[Watched, Run]]:
        """Read every log to its current end.

        Raises:
            UserError: a path is absent, or a file is not a log.
        """
        logs = find_logs(self._paths)
        watched = [
            Watched(name, self._readers.setdefault(log, LogReader(log)))
            for name, log in zip(names(logs), logs, strict=True)
        ]
        found: list[tuple[Watched, Run]] = []
        problems: list[str] = []
        for each in watched:
            run = _polled(each, problems)
            if run is not None:
                found.append((each, run))
        if problems:
            raise UserError(problems)
        return found


def _polled(watched: Watched, problems: list[str]) -> Run | None:
    try:
        return watched.poll()
    except UserError as error:
        problems.extend(error.problems)
        return None
