"""Loss in which every sentence has the same weight: the mean over sentences of their means over words.

The loss of DS-Init's authors (Zhang et al., EMNLP 2019; ``per_sample_loss`` in the models of
https://github.com/bzhangGo/zero), compared with fairseq's ``label_smoothed_cross_entropy``: sentences s of n_s words
have losses l_st, in a batch of S sentences and N words:

    stock                       sum_st l_st / N               every word counts the same
    stock, --sentence-avg       sum_st l_st / S               the same direction, a gradient N / S times as large
    by sentence                 sum_s (sum_t l_st / n_s) / S  a word of a short sentence counts for more

The last needs no ``--sentence-avg``. S counts the sentences of the whole update, over all processes and
``--update-freq``; the authors take the mean of each batch's mean.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor


@register_criterion("label_smoothed_cross_entropy_by_sentence", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class LabelSmoothedCrossEntropyBySentence(LabelSmoothedCrossEntropyCriterion):
    """``--criterion label_smoothed_cross_entropy_by_sentence``; the flags are those of the stock criterion.

    ``nll_loss`` and the perplexity in the log remain means over words, so that they can be compared.
    """

    def __init__(
        self, task: Any, label_smoothing: float, ignore_prefix_size: int = 0, report_accuracy: bool = False
    ) -> None:
        # The size of a batch is the number of its sentences.
        super().__init__(task, True, label_smoothing, ignore_prefix_size, report_accuracy)

    def compute_loss(self, model: Any, net_output: Any, sample: Any, reduce: bool = True) -> tuple[Tensor, Tensor]:
        """Return both losses; the first one of each word is divided by the number of words in its sentence."""
        losses, nll_losses = super().compute_loss(model, net_output, sample, reduce=False)
        words = model.get_targets(sample, net_output)[:, self.ignore_prefix_size :].ne(self.padding_idx)
        # A sentence that is shorter than --ignore-prefix-size has no loss.
        lengths = words.sum(dim=1, keepdim=True).clamp(min=1).expand_as(words)
        losses = losses / lengths.reshape(losses.shape)
        return (losses.sum(), nll_losses.sum()) if reduce else (losses, nll_losses)
