"""Read a training from the disk: its settings, its log, whether it finished, and its scores.

A run can be read in any state. Each missing or damaged file is a line in :attr:`Run.problems`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.core.fields import OLD_NAMES
from fairseq_plugins.errors import UserError
from fairseq_plugins.records import read_json
from fairseq_plugins.tools.pipeline.fairseq_log import TrainingLog, read_log
from fairseq_plugins.tools.pipeline.workspace import settings_in

RUN_RECORD, LOG, FINISHED, CHECKPOINTS, EVALUATION = "run.json", "train.log", "finished", "checkpoints", "evaluation"
AVERAGED, AVERAGE_WARNING = "averaged.pt", "average.warning"
SCORES, HYPOTHESES, REFERENCES = "score.json", "hypotheses.txt", "references.txt"
TOKENS, TOKENISED_REFERENCES, SELF_CHECK = "hypotheses.tok", "references.tok", "self-check.json"
SCORE_TABLE, SIGNATURE = "score.txt", "signature"

SEED = "common.seed"
TEXTS, COUNT, GROUP = ([str], None), range(1 << 60), ({str: object}, None)
FORMATS: Mapping[str, Any] = {
    RUN_RECORD: {
        **dict.fromkeys(("config", "precision", "data", "data_content", "prepared_by"), (str, None)),
        **{"overrides": TEXTS, "devices": TEXTS, "seed": (int, None), "parameters": (COUNT, None)},
        "cuda_graphs": (bool, None),
        "configuration": ({str: GROUP, "optimization": ({"max_update": (float, None)}, None)}, None),
    },
    FINISHED: {"num_updates": COUNT, "epochs": (COUNT, None), "reason": (str, None), "outcome": (str, None)},
    SCORES: {"metrics": ([{"name": str, "value": float, "signature": (str, None)}], None)},
}
"""The formats of JSON files, as :mod:`fairseq_plugins.records` writes them; older versions left out entries."""

JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """Results of ``fairseq-deep evaluate`` for one test set.

    Attributes:
        test_set: its name.
        directory: place of its files.
        metrics: the scores of ``score.json`` by name; empty if they are missing.
        decoding: settings by name, such as beam and length penalty.
    """

    test_set: str
    directory: Path
    metrics: Mapping[str, JsonObject] = field(default_factory=dict)
    decoding: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One directory of ``fairseq-deep run``.

    Attributes:
        directory: its path.
        settings: the content of ``run.json``; empty if that is missing or damaged.
        finished: the content of ``finished``; None if the training has not ended.
        log: the numbers of ``train.log``.
        evaluations: by test set, in the order of their names; only :func:`read_results` reads them.
        problems: one line for each file that is missing or damaged.
    """

    directory: Path
    settings: JsonObject
    finished: JsonObject | None
    log: TrainingLog
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def config(self) -> str | None:
        """The YAML file below ``configs/``, without ``.yaml``; None if ``run.json`` lacks it, as the values below."""
        return self.settings.get("config")

    @property
    def overrides(self) -> tuple[str, ...]:
        """The KEY=VALUE changes of the configuration, including the seed."""
        return tuple(self.settings.get("overrides") or ())

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes of the configuration without the seed, sorted."""
        return tuple(sorted(change for change in self.overrides if not sets_seed(change)))

    @property
    def seed(self) -> int | None:
        """The seed of the training."""
        return self.settings.get("seed")

    @property
    def updates(self) -> int:
        """Updates made, from ``finished``, else from the log."""
        return int((self.finished or {}).get("num_updates", self.log.updates))

    @property
    def checkpoints(self) -> Path:
        """Directory of its checkpoints."""
        return self.directory / CHECKPOINTS

    @property
    def data(self) -> Path | None:
        """The prepared directory that it was trained on."""
        path = Path(self.settings["data"]) if self.settings.get("data") is not None else None
        return path.parent if path is not None and path.name == "data-bin" else path

    def score(self, test_set: str, metric: str) -> float | None:
        """A score by the name of its metric, such as ``sacreBLEU``; None without one."""
        evaluation = self.evaluations.get(test_set)
        return evaluation.metrics.get(metric, {}).get("value") if evaluation else None

    def configured(self, group: str, key: str) -> Any:
        """A value of the complete configuration in ``run.json``; None if it is missing."""
        return ((self.settings.get("configuration") or {}).get(group) or {}).get(key)


def sets_seed(change: str) -> bool:
    """Whether a KEY=VALUE change of a configuration sets the seed."""
    return change.lstrip("+").startswith(f"{SEED}=")


def is_run(directory: Path) -> bool:
    """Whether a directory is a training, in any state."""
    return any((directory / name).exists() for name in (RUN_RECORD, LOG, FINISHED, CHECKPOINTS))


def read_run(directory: Path) -> Run:
    """Read one run; a UserError if the directory does not exist or is not a training."""
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory")
    if not is_run(directory):
        raise UserError(f"{directory}: not a run: it contains none of {RUN_RECORD}, {LOG}, {FINISHED}, {CHECKPOINTS}/")
    content: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for name in (RUN_RECORD, FINISHED):
        if name == RUN_RECORD or (directory / name).exists():
            try:
                content[name] = read_record(directory / name)
            except UserError as error:
                problems.append(str(error))
    if not (directory / LOG).is_file():
        problems.append(f"{directory / LOG}: no such file")
    log = read_log(directory / LOG)
    return Run(directory, content.get(RUN_RECORD, {}), content.get(FINISHED), log, problems=tuple(problems))


def read_results(directory: Path) -> Run:
    """Read one run like :func:`read_run`, and its evaluations."""
    run = read_run(directory)
    evaluations, problems = {}, [*run.problems]
    for place in sorted((directory / EVALUATION).glob("*")):
        if place.is_dir() and not place.name.endswith(".partial"):
            scores: list[JsonObject] = []
            decoding: dict[str, str] = {}
            try:
                scores = read_record(place / SCORES).get("metrics") or []
            except UserError as error:
                problems.append(str(error))
            try:
                decoding = settings_in(place)
            except UserError as error:
                problems.append(str(error))
            metrics = {metric["name"]: metric for metric in scores}
            evaluations[place.name] = Evaluation(place.name, place, metrics, decoding)
    return replace(run, evaluations=evaluations, problems=tuple(problems))


def find_runs(paths: list[Path]) -> list[Path]:
    """The runs among ``paths`` and below the others, each once, in order; a UserError for a path without one."""
    runs = {
        path: [path] if is_run(path) else sorted({file.parent for n in (RUN_RECORD, LOG) for file in path.rglob(n)})
        for path in paths
    }
    if empty := [path for path, below in runs.items() if not below]:
        none = f"not a run, and no run below it (no {RUN_RECORD} or {LOG})"
        raise UserError([f"{path}: {none if path.is_dir() else 'no such directory'}" for path in empty])
    return list({run.resolve(): run for below in runs.values() for run in below}.values())


def read_record(path: Path) -> dict[str, Any]:
    """The content of a file of ``FORMATS``, with today's names of settings; a UserError if it is damaged."""
    record = dict(read_json(path, FORMATS[path.name]))
    model = (record.get("configuration") or {}).get("model") or {}
    for earlier, name in OLD_NAMES.items():
        if (value := model.pop(earlier, None)) is not None:
            model[name] = value
    return record
