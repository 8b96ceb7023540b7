"""``fairseq-deep evaluate`` whole, on a tiny trained model: nothing lost, nothing reordered, everything signed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics import BLEU

from fairseq_plugins.checkpoints.files import read_checkpoint
from tests import processes, toy
from tests.scripts.running import times
from tests.texts import read as lines

OPTIONS = ("--average=last-epochs=3", "--beam=2", "--length-penalty=0.5", "--device=cpu")
EPOCHS = 12


def prepare(directory: Path) -> Path:
    """The toy corpus as fairseq-deep prepare leaves it, with two test sets, in a directory with a blank in its name."""
    toy.binarise(directory)
    (directory / "raw").mkdir()
    for name in ("test", "valid"):
        text = (directory / "text" / f"{name}.en").read_bytes()
        (directory / "raw" / f"{name}.en").write_bytes(text)
        (directory / "text" / f"{name}.tok.en").write_bytes(text)
    (directory / "test_sets").write_text("test\ttest\n")
    (directory / "text.json").write_text('{"tokeniser": "moses"}')
    return directory


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run and its data."""
    place = tmp_path_factory.mktemp("evaluate")
    data = prepare(place / "my corpus")
    flags = ("--max-epoch", str(EPOCHS), "--lr", "0.01")
    toy.train_toy(data / "data-bin", place / "my run" / "checkpoints", *flags, arch="post_ln_transformer")
    return place / "my run", data


def run(directory: Path, data: Path, *options: str) -> processes.Ended:
    return processes.python("-m", "fairseq_plugins.tools.cli", "evaluate", directory, data, *options)


@pytest.mark.slow
def test_a_run_is_averaged_decoded_scored_and_signed(trained: tuple[Path, Path], tmp_path: Path) -> None:
    directory, data = trained
    ended = run(directory, data, *OPTIONS)
    assert ended.code == 0
    place = directory / "evaluation" / "test"
    assert json.loads((place / "self-check.json").read_text())["bleu"] == 100
    assert "references against published ones: 100.00 BLEU, 0 of 60 lines differ\n" in ended.output

    # The mean of the last three epochs, by hand.
    averaged = read_checkpoint(directory / "averaged.pt")["model"]
    last = [
        read_checkpoint(directory / "checkpoints" / f"checkpoint{epoch}.pt")["model"]
        for epoch in range(EPOCHS - 2, EPOCHS + 1)
    ]
    for name, weight in averaged.items():
        expected = torch.stack([state[name].double() for state in last]).mean(0)
        torch.testing.assert_close(weight.double(), expected, rtol=1e-5, atol=1e-6)

    # The warning is of the losses that are printed.
    averaged_loss, last_loss = re.findall(r"([\d.]+) (?:bits per token averaged|of checkpoint12\.pt)", ended.output)
    worse = (
        f"the average has {averaged_loss} bits per token on the validation set, its last checkpoint alone {last_loss}"
    )
    warning = f"warning: {worse}; average fewer checkpoints, or none\n"
    assert ended.errors == (warning if float(averaged_loss) > float(last_loss) else "")

    # Every sentence once and in order: fairseq in this process, read by the numbers of its H- lines.
    flags = ("--lenpen", "0.5", "--max-len-b", "200", "--skip-invalid-size-inputs-valid-test")
    other = toy.translate_toy(data / "data-bin", directory / "averaged.pt", tmp_path, *flags)
    assert sorted(other) == list(range(60))
    assert lines(place / "hypotheses.tok") == [other[index] for index in range(60)]
    assert len({*other.values()}) > 10
    assert lines(place / "references.txt") == lines(data / "raw" / "test.en")

    # The score is sacreBLEU's of the files.
    scores = json.loads((place / "score.json").read_text())
    values = {metric["name"]: metric["value"] for metric in scores["metrics"]}
    texts = [lines(place / name) for name in ("hypotheses.txt", "references.txt")]
    assert values["sacreBLEU"] == pytest.approx(BLEU().corpus_score(texts[0], [texts[1]]).score)
    assert scores["sentences"] == 60

    signature = (place / "signature").read_text()
    checkpoint = hashlib.sha256((directory / "averaged.pt").read_bytes()).hexdigest()[:12]
    for part in (f"checkpoint:{checkpoint}", "average:last-epochs=3", "beam:2", "length-penalty:0.5", "tok:13a"):
        assert part in signature
    assert ended.output.endswith(signature)

    # Again: nothing is made anew. With other settings: nothing is mixed.
    before = times(directory)
    again = run(directory, data, *OPTIONS)
    assert (again.code, again.errors) == (0, "")
    assert times(directory) == before
    line = run(directory, data, *OPTIONS, "--beam=3").errors
    assert "was made with other settings (beam=3; was beam=2)" in line


@pytest.mark.slow
def test_references_that_are_not_the_published_ones_stop_it_before_anything_is_made(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    directory, data = trained
    (tmp_path / "test.en").write_text("".join(f"{line} more\n" for line in lines(data / "raw" / "test.en")))
    options = (*OPTIONS, f"--output={tmp_path / 'out'}", f"--references={tmp_path}")
    ended = run(directory, data, *options)
    assert ended.code == 2
    problem, *examples = ended.errors.splitlines()
    assert re.search(r"error: .*: test: a perfect translation would have [1-8]\d\.\d\d BLEU \(at least 99 is ", problem)
    assert f"are not those of {tmp_path}/test.en" in problem
    assert len(examples) == 3
    assert all(re.fullmatch(r"error: line \d+: prepared '.*', published '.* more'", line) for line in examples)
    assert [path.name for path in tmp_path.rglob("*.pt")] == []
    assert not (tmp_path / "out" / "test" / "hypotheses.tok").exists()

    # The signature of the score contains the reason.
    accepted = run(directory, data, *options, "--accept-references=a word more, on purpose")
    assert accepted.code == 0, accepted.errors
    assert "accepted: a word more, on purpose" in accepted.errors
    assert " accepted:a_word_more,_on_purpose " in (tmp_path / "out" / "test" / "signature").read_text()
