"""On WMT's own test sets, the numbers of sacreBLEU's command line: scores and p-values."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.scoring.metrics import METRICS, value_of
from fairseq_plugins.tools.scoring.scores import score
from fairseq_plugins.tools.scoring.significance import compare
from fairseq_plugins.tools.scoring.text import moses, split_compounds
from tests.scoring.made_up import dropped, swapped
from tests.texts import read, write

SENTENCES = 250
"""Sentences of each test set; TER takes its time."""


def sacrebleu(*arguments: object) -> str:
    """The output of sacreBLEU's command; ten decimals, so that equal means equal."""
    command = [sys.executable, "-m", "sacrebleu", *map(str, arguments), "-w", "10"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


@pytest.fixture
def texts(real_corpus: Callable[[str], Path], tmp_path: Path) -> tuple[Path, Path, Path]:
    """The references of newstest2014 and two made-up outputs of it, as files."""
    references = read(real_corpus("wmt_news") / "newstest2014.de")[:SENTENCES]
    first = dropped(references, 7)
    return (
        write(tmp_path / "reference", references),
        write(tmp_path / "first one", first),
        write(tmp_path / "second", swapped(first, 3)),
    )


def test_every_score(texts: tuple[Path, Path, Path], tmp_path: Path) -> None:
    reference, hypothesis, _ = texts
    told = json.loads(sacrebleu(reference, "-i", hypothesis, "-m", "bleu", "chrf", "ter", "--format", "json"))
    (plus,) = [json.loads(sacrebleu(reference, "-i", hypothesis, "-m", "chrf", "--chrf-word-order", "2"))]
    assert main(["score", str(hypothesis), str(reference), "--output", str(tmp_path / "score.json")]) == 0
    found = json.loads((tmp_path / "score.json").read_text(encoding="utf-8"))
    ours = {(metric["name"], metric["signature"]): metric["value"] for metric in found["metrics"]}
    names = {"BLEU": "sacreBLEU", "chrF2": "chrF", "chrF2++": "chrF++", "TER": "TER"}
    theirs = {(names[one["name"]], one["signature"]): one["score"] for one in [*told, plus]}
    assert ours == {key: pytest.approx(score, abs=1e-9) for key, score in theirs.items()}
    assert found["sentences"] == SENTENCES


@pytest.mark.parametrize(("test", "flag", "samples"), [("bootstrap", "bs", 300), ("randomisation", "ar", 500)])
def test_p_values(test: str, flag: str, samples: int, texts: tuple[Path, Path, Path]) -> None:
    reference, first, second = texts
    third = write(first.with_name("third"), dropped(read(reference), 7, start=3))
    systems = {name: read(path) for name, path in (("first", first), ("second", second), ("third", third))}
    # The functions that the command calls: sacreBLEU 2.0 prints paired tests as text only.
    metric = BLEU(references=[read(reference)])
    told = PairedTest(list(systems.items()), {"BLEU": metric}, None, test_type=flag, n_samples=samples)()[1]["BLEU"]
    found = compare(systems, [read(reference)], tests=[test], samples={test: samples})
    expected = [row.p_value for row in told[1:]]
    assert [one.p for one in found] == [pytest.approx(p, abs=1e-9) for p in expected]
    assert [one.system for one in found] == ["second", "third"]
    assert expected[0] < 0.05 < expected[1]
    scores = [row.score for row in told]
    assert [one.difference for one in found] == [pytest.approx(score - scores[0], abs=1e-8) for score in scores[1:]]


def test_reference_lengths_of_newstest2014(real_corpus: Callable[[str], Path]) -> None:
    """62688 and 64496 stand in the published results of Ott et al. (2018)."""
    references = read(real_corpus("wmt_news") / "newstest2014.de")
    assert value_of(METRICS["sacrebleu"], references, [references]).reference_length == 62688
    assert sum(len(text.split()) for text in split_compounds(moses(references, "de"))) == 64496


def test_both_forms_of_compound_splitting_are_what_the_scripts_print(real_corpus: Callable[[str], Path]) -> None:
    """Printed by multi-bleu.perl of newstest2014.de, straight quotes in the output and every eighth word dropped: once
    behind tokenizer.perl and the substitution of both scripts, once behind replace-unicode-punctuation.perl as well
    (Moses 3445289). Its tokens are those since November 2018, eight of 64,504 otherwise than here.
    """  # noqa: D205
    references = read(real_corpus("wmt_news") / "newstest2014.de")
    straight = str.maketrans(dict(zip("„“”’‚‘–", ('"', '"', '"', "'", "'", "'", "-"), strict=True)))
    outputs = dropped([sentence.translate(straight) for sentence in references], 8)
    names = ["compound-split", "compound-split-t2t"]
    scores = score({"a": outputs}, [references], language_pair="en-de", metrics=names).systems[0].scores
    assert scores["compound-split BLEU"].mean == pytest.approx(68.32, abs=0.011)
    assert scores["compound-split BLEU (t2t)"].mean == pytest.approx(69.27, abs=0.011)
