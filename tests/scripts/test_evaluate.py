"""``fairseq-deep evaluate`` whole, on a tiny trained model: nothing lost, nothing reordered, everything signed."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from tests import processes, toy
from tests.scripts.running import times
from tests.texts import read as lines

OPTIONS = ("--average=last-epochs=3", "--beam=2", "--length-penalty=0.5", "--device=cpu")


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


def run(directory: Path, data: Path, *options: str) -> processes.Ended:
    return processes.python("-m", "fairseq_plugins.tools.cli", "evaluate", directory, data, *options)


@pytest.mark.slow
def test_a_run_is_checked_decoded_scored_and_signed(tmp_path: Path) -> None:
    """References that are not the published ones stop it, until a reason is given, which is signed."""
    directory, data = tmp_path / "my run", prepare(tmp_path / "my corpus")
    flags = ("--max-epoch", "12", "--lr", "0.01")
    toy.train_toy(data / "data-bin", directory / "checkpoints", *flags, arch="post_ln_transformer")
    (tmp_path / "test.en").write_text("".join(f"{line} more\n" for line in lines(data / "raw" / "test.en")))
    options = (*OPTIONS, f"--references={tmp_path}")
    ended = run(directory, data, *options)
    problem, *examples = ended.errors.splitlines()
    assert (ended.code, len(examples)) == (2, 3)
    assert re.search(r"error: .*: test: a perfect translation would have [1-8]\d\.\d\d BLEU \(at least 99 is ", problem)
    assert f"are not those of {tmp_path}/test.en" in problem
    assert all(re.fullmatch(r"error: line \d+: prepared '.*', published '.* more'", line) for line in examples)
    assert not (directory / "averaged.pt").exists()

    options += ("--accept-references=a word more, on purpose",)
    ended = run(directory, data, *options)
    assert ended.code == 0, ended.errors
    assert "accepted: a word more, on purpose" in ended.errors

    # Every sentence once and in order: fairseq in this process, read by the numbers of its H- lines.
    place = directory / "evaluation" / "test"
    flags = ("--lenpen", "0.5", "--max-len-b", "200", "--skip-invalid-size-inputs-valid-test")
    other = toy.translate_toy(data / "data-bin", directory / "averaged.pt", tmp_path, *flags)
    assert lines(place / "hypotheses.tok") == [other[index] for index in range(60)]
    assert len({*other.values()}) > 10
    [score, *_] = json.loads((place / "score.json").read_text())["metrics"]
    texts = [lines(place / name) for name in ("hypotheses.txt", "references.txt")]
    assert score["value"] == pytest.approx(BLEU().corpus_score(texts[0], [texts[1]]).score)
    signature = (place / "signature").read_text()
    checkpoint = hashlib.sha256((directory / "averaged.pt").read_bytes()).hexdigest()[:12]
    for part in (f"checkpoint:{checkpoint}", "average:last-epochs=3", "beam:2", "length-penalty:0.5", "tok:13a"):
        assert part in signature
    assert " accepted:a_word_more,_on_purpose " in signature
    assert ended.output.endswith(signature)

    # Again: nothing is made anew. With other settings: nothing is mixed.
    before = times(directory)
    assert run(directory, data, *options).code == 0
    assert times(directory) == before
    assert "was made with other settings (beam=3; was beam=2)" in run(directory, data, *options, "--beam=3").errors
