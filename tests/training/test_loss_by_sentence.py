"""The loss that averages over sentences: its closed form, its gradient, whole trainings and what they log."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq_cli import train
from torch import Tensor, nn

from fairseq_plugins.training.loss_by_sentence import LabelSmoothedCrossEntropyBySentence
from tests import models, processes, toy

NAME = "label_smoothed_cross_entropy_by_sentence"
BY_SENTENCE, BY_WORD = ("--criterion", NAME), "label_smoothed_cross_entropy"
EPSILON = 0.1
PAD = models.dictionary().pad()


class Table(BaseFairseqModel):
    """A model whose output is its parameter: one row of logits for each word of the target."""

    def __init__(self, target: Tensor) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        self.logits = nn.Parameter(torch.randn(*target.shape, len(models.dictionary()), generator=draw))

    def forward(self) -> Tensor:
        return self.logits


def criterion(**settings: Any) -> LabelSmoothedCrossEntropyBySentence:
    return LabelSmoothedCrossEntropyBySentence(models.task(), label_smoothing=EPSILON, **settings)


def sample_of(target: Tensor) -> dict[str, Any]:
    return {"net_input": {}, "target": target, "ntokens": int(target.ne(PAD).sum())}


def mean_of_each_sentence(logits: Tensor, target: Tensor, skipped: int = 0) -> Tensor:
    """Sentence by sentence, without pads: 1 - epsilon for the right word, the rest spread over all the others."""
    total = torch.zeros(())
    for rows, words in zip(logits, target, strict=True):
        kept = [(row, word) for row, word in zip(rows[skipped:], words[skipped:], strict=True) if word != PAD]
        for row, word in kept:
            wanted = torch.full_like(row, EPSILON / (len(row) - 1))
            wanted[word] = 1 - EPSILON
            total = total - (wanted * F.log_softmax(row, dim=0)).sum() / len(kept)
    return total


@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_a_padded_batch_has_the_loss_of_its_sentences_one_by_one_and_its_gradient(skipped: int) -> None:
    target = models.batch(sentences=6, longest=9).target
    assert len(set(target.ne(PAD).sum(dim=1).tolist())) > 2
    model = Table(target)
    loss, size, log = criterion(ignore_prefix_size=skipped)(model, sample_of(target))
    expected = mean_of_each_sentence(model.logits, target, skipped)
    assert size == log["sample_size"] == log["nsentences"] == 6
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    (found,) = torch.autograd.grad(loss, model.logits)
    (wanted,) = torch.autograd.grad(expected, model.logits)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-7)


def test_without_reduction_each_word_has_its_share() -> None:
    target = models.batch(sentences=3).target
    model, one = Table(target), criterion()
    whole, _, log = one(model, sample_of(target))
    shares, _, apart = one(model, sample_of(target), reduce=False)
    assert shares.numel() == target.numel()
    torch.testing.assert_close(shares.sum(), whole)
    torch.testing.assert_close(apart["nll_loss"].sum(), log["nll_loss"])


def test_a_sentence_of_which_nothing_is_left_has_no_loss() -> None:
    target = torch.tensor([[5, 2, PAD, PAD], [5, 6, 7, 2]])
    model = Table(target)
    loss, _, _ = criterion(ignore_prefix_size=2)(model, sample_of(target))
    torch.testing.assert_close(loss, mean_of_each_sentence(model.logits[1:], target[1:], 2))


def test_the_log_has_the_mean_over_sentences_in_bits_and_the_perplexity_over_words() -> None:
    target = models.batch(sentences=6, longest=9).target
    model, one = Table(target), criterion(report_accuracy=True)
    log = one(model, sample_of(target))[2]
    with metrics.aggregate() as found:
        one.reduce_metrics([log])
    values = found.get_smoothed_values()
    words = target.ne(PAD)
    entropy = F.cross_entropy(model.logits.flatten(0, 1), target.flatten(), ignore_index=PAD).item()
    right = (model.logits.argmax(dim=2).eq(target) & words).sum().item()
    assert values["loss"] == pytest.approx(mean_of_each_sentence(model.logits, target).item() / 6 / math.log(2), 1e-4)
    assert values["nll_loss"] == pytest.approx(entropy / math.log(2), abs=1e-3)
    assert values["ppl"] == pytest.approx(math.exp(entropy), rel=1e-2)
    assert values["accuracy"] == pytest.approx(100 * right / words.sum().item(), abs=1e-3)


def test_two_processes_are_two_batches_of_one(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes.fork_ranks(monkeypatch)
    flags = (*BY_SENTENCE, "--dropout", "0", "--no-epoch-checkpoints", "--max-update", "3", "--optimizer", "sgd")
    two = toy.parse_training(toy_data, tmp_path / "two", *flags, "--distributed-world-size", "2")
    distributed_utils.call_main(two, train.main)
    toy.train_toy(toy_data, tmp_path / "one", *flags, "--update-freq", "2")
    toy.train_toy(toy_data, tmp_path / "by_word", *flags, "--update-freq", "2", "--criterion", BY_WORD)
    found, wanted, words = (toy.weights_of(tmp_path / run / "checkpoint_last.pt") for run in ("two", "one", "by_word"))
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)
    assert any(not torch.allclose(value, words[name], rtol=1e-4, atol=1e-6) for name, value in wanted.items())
