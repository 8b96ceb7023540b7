"""The study of depth reads what an evaluation has written, and plans sweeps and seeds by earlier results."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.tools.pipeline.results import read_run
from tests.benchmarks.test_run_all import script
from tests.pipeline.making import write_run


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Any:
    return script("depth_study", monkeypatch)


def test_scores_and_the_test_against_the_baseline(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the cat number {number} sat on the mat" for number in range(30)]
    made = {"pre_ln_6e6d": [text.replace("cat", "dog") for text in texts], "admin_6e6d": texts}
    found = {}
    monkeypatch.setattr(study, "TEST_SETS", ("test",))
    monkeypatch.setattr(study, "best_rate", lambda config: 1e-3)
    monkeypatch.setattr(study, "higher_rate", lambda config: None)
    ended = [
        {"config": "pre_ln_6e6d", "stage": "long", "rate": rate, "outcome": "ok"}
        for rate in ("0.002", "0.001", "0.001")
    ]
    monkeypatch.setattr(study, "lines", lambda: ended)
    other = study.Training("pre_ln_6e6d", "long", 1, 2e-3).directory(tmp_path)
    write_run(other, texts=(texts, texts), finished={})  # no worse than the method
    *_, [first, second] = study.stages(["admin_6e6d", "pre_ln_6e6d"], [1], "long")
    for training in (first, second):
        directory = training.directory(tmp_path)
        scores = {"sacreBLEU": 31.254, "chrF": 55.5}
        write_run(directory, scores=scores, texts=(made[training.config], texts), finished={})
        shutil.copytree(directory / "evaluation", directory / "evaluation_averaged")
        monkeypatch.setattr(study, "_call", lambda *words: (0.0, 0.0))
        found[training.config] = study.scores(read_run(directory), tmp_path / "data", tmp_path, training)
    columns = {"bleu_test": "31.25", "chrf_test": "55.50", "bleu_test_averaged": "31.25", "chrf_test_averaged": "55.50"}
    assert found["pre_ln_6e6d"] == columns
    assert found["admin_6e6d"] == {**columns, "p_test": "0.001"}


def test_a_sweep_goes_above_its_range_while_its_highest_rate_wins(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {5e-4: 7.0, 1e-3: 6.0, 2e-3: 5.5}
    read: list[dict[str, str]] = []
    monkeypatch.setattr(study, "lines", lambda: read)

    def tried(higher: dict[float, float]) -> list[float]:
        read.clear()
        found = []
        for stage in study.stages(["admin_6e6d"], [1], "sweep"):
            for training in stage:
                found.append(training.rate)
                valid = str((losses | higher)[training.rate]).replace("inf", "")
                read.append({"config": "admin_6e6d", "stage": "sweep", "rate": str(training.rate), "valid": valid})
        return found[4:]

    assert tried({4e-3: 5.6}) == []
    assert tried({4e-3: 5.1, 8e-3: 5.2}) == [8e-3]
    assert tried({4e-3: 5.1, 8e-3: float("inf")}) == [8e-3]  # it has diverged
    assert tried({4e-3: 5.1, 8e-3: 5.0, 16e-3: 4.9}) == [8e-3, 16e-3]


def test_what_never_learnt_gets_no_further_seed(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = [("post_ln_6e6d", "sweep", "failed to train"), ("pre_ln_6e6d", "sweep", "diverged")]
    ended = [("post_ln_6e6d", "full", "failed to train"), ("pre_ln_6e6d", "full", "ok")]

    def planned(lines: list[tuple[str, str, str]]) -> set[str]:
        read = [dict(zip(("config", "stage", "outcome"), line, strict=True)) for line in lines]
        monkeypatch.setattr(study, "lines", lambda: read)
        monkeypatch.setattr(study, "best_rate", lambda config: 1e-3)
        monkeypatch.setattr(study, "higher_rate", lambda config: None)
        stages = study.stages(["post_ln_6e6d", "pre_ln_6e6d"], [2])
        return {training.config for stage in stages for training in stage if training.stage == "full"}

    assert planned(swept) == {"post_ln_6e6d", "pre_ln_6e6d"}
    assert planned(swept + ended) == {"pre_ln_6e6d"}
