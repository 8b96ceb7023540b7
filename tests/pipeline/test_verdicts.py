"""Verdicts on runs, with closed forms of the entropy."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from fairseq_plugins.pipeline.results import read_run
from fairseq_plugins.pipeline.verdicts import verdict_of
from tests.pipeline.making import write_run


@pytest.fixture
def data(tmp_path):
    """Seven words once each and one end of sentence: 3 bits."""
    (tmp_path / "data" / "text").mkdir(parents=True)
    (tmp_path / "data" / "text" / "train.en").write_text("a b c d e f g\n")
    return tmp_path / "data"


def test_verdict(tmp_path, data, subtests):
    guarded = {"num_updates": 9, "epochs": 1, "outcome": "diverged", "reason": "Minimum loss scale reached"}
    for said, outcome, reason in (
        ({"valid": {10: 2.84}, "scores": {"sacreBLEU": 1.0}}, "ok", "alone give 3.00"),
        ({"valid": {10: 2.86}, "scores": {"sacreBLEU": 1.0}}, "failed to train", "token frequencies alone give 3.00"),
        ({"valid": {10: 2.86}}, "failed to train", "token frequencies alone give 3.00"),
        ({"valid": {10: 2.0}}, "not evaluated", "fairseq-deep evaluate"),
        ({"valid": {10: 2.0}, "finished": {}}, "not finished", "10 of 500 updates"),
        ({"valid": {10: float("nan")}}, "diverged", "loss not finite"),
        ({"valid": {10: float("nan")}, "finished": {}}, "diverged", "loss not finite"),
        ({"finished": guarded}, "diverged", "Minimum loss scale reached"),
        ({"valid": {}, "scores": {"sacreBLEU": 1.0}}, "unknown", "never validated"),
    ):
        with subtests.test(said=said):
            place = Path(tempfile.mkdtemp(dir=tmp_path)) / "run"
            verdict = verdict_of(read_run(write_run(place, data=data, **said)))
            assert verdict.outcome == outcome
            assert reason in verdict.reason


def test_the_frequencies_of_a_language_model_are_in_its_dictionary(tmp_path):
    directory = write_run(tmp_path / "run", data=tmp_path, valid={10: 1.91}, scores={"perplexity": 3.0})
    record = (directory / "run.json").read_text().replace('"target_lang": "en"', '"target_lang": null')
    (directory / "run.json").write_text(record)
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "dict.txt").write_text("a 5\nb 5\nc 5\nd 5\n")  # 2 bits; the limit is 1.9
    assert verdict_of(read_run(directory)).outcome == "failed to train"


def test_without_training_text_nothing_is_claimed(tmp_path):
    assert verdict_of(read_run(write_run(tmp_path / "run", scores={"sacreBLEU": 1.0}))).outcome == "unknown"
