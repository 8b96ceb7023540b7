"""Made-up words follow Zipf's law; a corpus gives its own sentences."""

from pathlib import Path

import pytest
import torch

from fairseq_plugins.checkpoints.fold import made_up_task
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics.batches import read_data, zipf_batch


def test_words_follow_zipfs_law() -> None:
    drawn = zipf_batch(made_up_task(104, 104), 200, 501).source[:, :-1]
    counts = torch.bincount(drawn.flatten(), minlength=104).double() / drawn.numel()
    expected = 1 / torch.arange(1, 101).double()
    expected = torch.cat([torch.zeros(4), expected / expected.sum()])
    # Four standard deviations of a binomial share.
    assert torch.all((counts - expected).abs() <= 4 * (expected / drawn.numel()).sqrt())


def test_sentences_end_and_targets_are_shifted() -> None:
    made = zipf_batch(made_up_task(50, 70), sentences=5, length=9)
    assert made.source.shape == made.target.shape == (5, 9)
    assert torch.equal(torch.cat([made.source[:, -1], made.target[:, -1], made.previous[:, 0]]), torch.full((15,), 2))
    assert torch.equal(made.previous[:, 1:], made.target[:, :-1])
    assert int(made.source.max()) < 50
    assert made.lengths.tolist() == [9] * 5
    drawn = [zipf_batch(made_up_task(50, 50), 3, 7, seed).source.tolist() for seed in (4, 4, 5)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_corpus_gives_its_first_short_sentences(toy_data: Path) -> None:
    assert toy_data.name == "data-bin"
    task, make = read_data(toy_data.parent)
    made = make(5, 6)
    assert len(made.source) == 5
    assert made.lengths.tolist() == made.source.ne(1).sum(dim=1).tolist()
    assert int(made.lengths.max()) <= 6
    text = (toy_data.parent / "text" / "valid.de").read_text(encoding="utf-8").splitlines()
    first = task.source_dictionary.string(made.source[made.source.ne(1).all(dim=1)][0])
    assert first in text


def test_no_corpus_is_one_line(tmp_path: Path, toy_data: Path) -> None:
    with pytest.raises(UserError, match="absent: no such directory"):
        read_data(tmp_path / "absent")
    with pytest.raises(UserError, match=r"no binarised corpus \(there is no dict"):
        read_data(tmp_path)
    with pytest.raises(UserError, match="no validation sentence has at most 1 tokens; give a larger --length"):
        read_data(toy_data)[1](3, 1)
