"""The whole job at toy size: raw files in, report out; run again, nothing is done twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sacrebleu

from fairseq_plugins.demo.__main__ import main

WORDS = {"ein": "one", "zwei": "two", "drei": "three", "vier": "four", "Haus": "house", "Hund": "dog"}


def write(directory: Path, split: str, count: int, offset: int) -> None:
    german = list(WORDS)
    sentences = [[german[(offset + n * step) % len(german)] for n in range(2 + step % 5)] for step in range(count)]
    for language, words in (("de", sentences), ("en", [[WORDS[word] for word in line] for line in sentences])):
        (directory / f"{split}.{language}").write_text("".join(" ".join(line) + ".\n" for line in words))


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The finished job's flags; it ran once for this module."""
    directory = tmp_path_factory.mktemp("job with a space")
    for split, count, offset in (("train", 100, 0), ("val", 13, 1), ("test", 21, 2)):
        write(directory, split, count, offset)
    flags = "--methods transformer --encoder-layers 2 --decoder-layers 2 --width 32 --ffn-width 32 --heads 2 "
    flags += "--max-update 20 --save-interval 5 --average 2 --bpe-operations 20 --max-tokens 200 --device cpu --beam 2"
    arguments = ["--data", str(directory), "--out", str(directory / "out"), *flags.split()]
    assert main(arguments) == 0
    return arguments


def out(arguments: list[str]) -> Path:
    return Path(arguments[arguments.index("--out") + 1])


@pytest.mark.slow
def test_report_agrees_with_what_was_written(arguments):
    results = json.loads((out(arguments) / "results.json").read_text(encoding="utf-8"))
    (row,) = results["results"]
    assert row["method"] == "transformer"
    assert row["failed"] is None
    assert row["parameters"] > 0
    assert row["diverged"] in (True, False)
    assert sorted(map(int, row["valid_curve"])) == [5, 10, 15, 20]
    assert row["valid_loss"] == row["valid_curve"]["20"]
    hypotheses = (out(arguments) / "transformer" / "translation" / "hypotheses.en").read_text().splitlines()
    references = (Path(arguments[1]) / "test.en").read_text().splitlines()
    assert len(hypotheses) == len(references) == 21
    assert row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert f"{row['parameters']:,}" in (out(arguments) / "report.md").read_text()
    assert (out(arguments) / "curves.png").is_file()


@pytest.mark.slow
def test_running_it_again_makes_nothing_again(arguments, capsys):
    directory = out(arguments)
    kept = {
        path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file() and path.parent != directory
    }
    report = (directory / "report.md").read_text()
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (directory / "report.md").read_text() == report
    shown = capsys.readouterr().out
    assert shown.count("there already, kept") == 2
    assert "transformer: trained already, kept" in shown


@pytest.mark.slow
def test_another_budget_for_the_same_directory_is_refused(arguments, capsys):
    more = list(arguments)
    more[more.index("--max-update") + 1] = "40"
    assert main(more) == 2
    assert "max_update: 40, was 20" in capsys.readouterr().err
