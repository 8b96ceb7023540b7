"""Word dropout: set whole word vectors to zero in training.

Takase and Kiyono, NAACL 2021, https://arxiv.org/abs/2104.01853, section 2. It regularises the deep models of the B2T
paper. Its released code calls it ``--sampling-method worddrop``, with ``--enc-replace-rate`` and
``--dec-replace-rate``; here it is ``--word-dropout ENCODER,DECODER``.
"""

import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import GENERAL_OPTIONS, Option

GENERAL_OPTIONS["word_dropout"] = Option(
    "word_dropout", 0.0, "rate at which word vectors are zeroed in training, but for the start symbol", rate=True
)


class WordDropout(nn.Module):
    """Set each vector of ``(B, T, C)`` to zero with probability ``rate``, without rescaling the others.

    It follows the look-up in the table, before the vectors are scaled by sqrt(C) and positions are added, so that the
    position of a dropped word remains. It is off in evaluation. As in the released code, nothing is kept in the
    encoder, neither the end of the sentence nor pads, whose vectors are zero anyway.

    Args:
        rate: at least 0, below 1.
        keep_first: never drop the first position, the decoder's start symbol.
    """

    def __init__(self, rate: float, keep_first: bool = False) -> None:
        super().__init__()
        self.rate, self.keep_first = rate, keep_first

    def forward(self, x: Tensor) -> Tensor:
        """Set whole word vectors to zero."""
        if not self.training or self.rate == 0.0:
            return x
        kept = torch.rand_like(x[:, :, :1], dtype=torch.float32) >= self.rate
        if self.keep_first:
            kept[:, 0] = True
        return x * kept.type_as(x)
