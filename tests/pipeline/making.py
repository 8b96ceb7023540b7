"""Directories of runs, made by hand with known numbers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.tools.pipeline.corpus import TestSet
from fairseq_plugins.tools.pipeline.decoding import DecodePlan
from tests.texts import write

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def train_line(updates: int, nll: str, wps: str = "1000") -> str:
    """A line of a training log about updates."""
    record = {"epoch": 1, "loss": "9", "nll_loss": nll, "wps": wps, "wpb": "1000", "num_updates": str(updates)}
    return f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(record)}\n"


def valid_line(updates: int, **losses: str) -> str:
    """A line of a training log about a validation; ``losses`` are named as fairseq does."""
    record = {"epoch": 1, "valid_loss": "9", **losses, "valid_num_updates": str(updates)}
    return f"2026-01-01 00:00:00 | INFO | valid | {json.dumps(record)}\n"


def plan_of(task: str, data: Path, published: Path = Path(), **how: Any) -> DecodePlan:
    """The plan of a run with one test set, ``test``."""
    binarised = data / "data-bin" if (data / "data-bin").is_dir() else data
    return DecodePlan(task, data, binarised, (TestSet("test", "test", published),), **how)


def write_scores(
    run: Path, test_set: str, scores: Mapping[str, float], texts: tuple[list[str], list[str]] | None = None
) -> None:
    """Write the evaluation of one test set; ``texts`` are hypotheses and references."""
    place = run / "evaluation" / test_set
    place.mkdir(parents=True, exist_ok=True)
    metrics = [{"name": name, "value": value, "signature": SIGNATURE} for name, value in scores.items()]
    (place / "score.json").write_text(json.dumps({"sentences": 3, "metrics": metrics}))
    for name, lines in zip(("hypotheses.txt", "references.txt"), texts or (), strict=False):
        write(place / name, lines)


def write_run(
    directory: Path,
    *,
    config: str = "iwslt14_de_en/admin_6e6d",
    seed: int = 1111,
    changes: Sequence[str] = (),
    data: Path | None = None,
    valid: Mapping[int, float] | None = None,
    speeds: Sequence[float] = (1000.0,),
    finished: Mapping[str, Any] | None = None,
    scores: Mapping[str, float] | None = None,
    texts: tuple[list[str], list[str]] | None = None,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """A run with one test set ``test``; ``finished`` is the content of its file, an empty mapping for no file.

    ``record`` replaces what ``run.json`` says otherwise.
    """
    directory.mkdir(parents=True)
    settings = {
        "config": config,
        "overrides": [f"common.seed={seed}", *changes],
        "seed": seed,
        "parameters": 36741120,
        "data": str(data or "/nowhere"),
        "devices": ["Tiny CPU"],
        "configuration": {
            "model": {"encoder_layers": 6, "decoder_layers": 6},
            "task": {"target_lang": "en"},
            "optimization": {"max_update": 500},
        },
    }
    (directory / "run.json").write_text(json.dumps({**settings, **(record or {})}))
    log = [train_line(place, "8", str(speed)) for place, speed in enumerate(speeds, start=1)]
    losses = {100: 4.0, 200: 3.5} if valid is None else valid
    log += [valid_line(updates, valid_nll_loss=str(loss)) for updates, loss in losses.items()]
    (directory / "train.log").write_text("".join(log))
    if finished is None:
        finished = {"num_updates": 500, "epochs": 3}
    if finished:
        (directory / "finished").write_text(json.dumps(finished))
    if scores is not None:
        write_scores(directory, "test", scores, texts)
    return directory
