"""A run is read in any state, a line for each damaged file, and judged; the entropy against its closed form."""

import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.tools.pipeline.results import find_runs, read_results, read_run
from fairseq_plugins.tools.pipeline.verdicts import unigram_entropy, verdict_of
from tests.pipeline.making import write_run, write_scores
from tests.refusals import problems_of, refused


def test_everything_is_read(tmp_path):
    directory = write_run(
        tmp_path / "run",
        seed=2222,
        changes=["optimization.lr=[0.001]"],
        scores={"sacreBLEU": 35.5},
        data=tmp_path / "corpus" / "data-bin",
    )
    write_scores(directory, "new.partial", {"sacreBLEU": 1.0})
    run = read_results(directory)
    assert run.problems == ()
    assert (run.config, run.seed, run.updates) == ("iwslt14_de_en/admin_6e6d", 2222, 500)
    assert run.overrides == ("common.seed=2222", "optimization.lr=[0.001]")
    assert run.changes == ("optimization.lr=[0.001]",)
    assert (run.log.final_valid_loss, run.data) == (3.5, tmp_path / "corpus")
    scores = (("test", "sacreBLEU"), ("test", "chrF"), ("new", "sacreBLEU"))
    assert [run.score(*which) for which in scores] == [35.5, None, None]
    assert [run.configured("model", name) for name in ("encoder_layers", "nothing")] == [6, None]
    assert run.configured("nothing", "nothing") is None
    assert list(run.evaluations) == ["test"]


def test_runs_are_found_below_a_directory_each_once(tmp_path, monkeypatch):
    runs = [write_run(tmp_path / "all" / name / f"seed{seed}") for name in ("b", "a") for seed in (2, 1)]
    (tmp_path / "all" / "report").mkdir()
    assert find_runs([tmp_path / "all", runs[0]]) == sorted(runs)
    assert find_runs([runs[0], runs[2]]) == [runs[0], runs[2]]
    monkeypatch.chdir(tmp_path)
    assert len(find_runs([tmp_path, Path("all")])) == len(runs)
    none, absent = problems_of(find_runs, [tmp_path / "all" / "report", tmp_path / "absent"])
    assert none.startswith(f"{tmp_path}/all/report: not a run")
    assert absent == f"{tmp_path}/absent: no such directory"
    assert "not a run: it contains none of run.json" in refused(read_run, tmp_path / "all" / "report")


GUARDED = {"num_updates": 9, "epochs": 1, "outcome": "diverged", "reason": "Minimum loss scale reached"}
SCORED = {"scores": {"sacreBLEU": 1.0}}
VERDICTS = (
    # Seven words once each and one end of sentence are 3 bits; the limit is 2.85.
    ({"valid": {10: 2.84}, **SCORED}, "ok", "unigram baseline is 3.00"),
    ({"valid": {10: 2.86}, **SCORED}, "failed to train", "the unigram baseline is 3.00"),
    ({"valid": {10: 2.0, 20: 2.86}}, "failed to train", "the unigram baseline is 3.00"),
    ({"valid": {10: 2.0}}, "not evaluated", "fairseq-deep evaluate"),
    ({"valid": {10: 2.0}, "finished": {}}, "not finished", "10 of 500 updates"),
    ({"valid": {10: float("nan")}}, "diverged", "loss not finite"),
    ({"valid": {10: float("nan")}, "finished": {}}, "diverged", "loss not finite"),
    ({"finished": GUARDED}, "diverged", "Minimum loss scale reached"),
    ({"valid": {}, **SCORED}, "unknown", "never validated"),
)


def test_verdicts(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "train.en").write_text("a b c d e f g\n")
    for number, (settings, outcome, reason) in enumerate(VERDICTS):
        verdict = verdict_of(read_results(write_run(tmp_path / str(number), data=tmp_path, **settings)))
        assert verdict.outcome == outcome, settings
        assert reason in verdict.reason
    # Without the text of the training nothing is claimed.
    assert verdict_of(read_results(write_run(tmp_path / "run", **SCORED))).outcome == "unknown"


def test_the_frequencies_of_a_language_model_are_in_its_dictionary(tmp_path):
    without_languages = {"record": {"configuration": {}}, "scores": {"perplexity": 3.0}}
    directory = write_run(tmp_path / "run", data=tmp_path, valid={10: 1.91}, **without_languages)
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "dict.txt").write_text("a 5\nb 5\nc 5\nd 5\n")  # 2 bits; the limit is 1.9
    assert verdict_of(read_results(directory)).outcome == "failed to train"


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8), min_size=1, max_size=20))
def test_unigram_entropy_is_the_mean_surprise(lines):
    tokens = [token for line in lines for token in [*line, "</s>"]]
    counts = Counter(tokens)
    surprise = sum(-math.log2(counts[token] / len(tokens)) for token in tokens) / len(tokens)
    assert unigram_entropy(" ".join(line) + "\n" for line in lines) == pytest.approx(surprise, abs=1e-9)
