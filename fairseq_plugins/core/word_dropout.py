"""Word dropout: set whole word vectors to zero in training.

Takase and Kiyono, NAACL 2021, https://arxiv.org/abs/2104.01853, section 2; ``--sampling-method worddrop`` with
``--enc-replace-rate`` and ``--dec-replace-rate`` in the released code of B2T.
"""

import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import GENERAL_OPTIONS, Option

GENERAL_OPTIONS["word_dropout"] = Option(
    "word_dropout", 0.0, "rate at which word vectors are zeroed in training, but for the start symbol", rate=True
)


class WordDropout(nn.Module):
    """Set each vector of ``(B, T, C)`` to zero with probability ``rate``, without rescaling the others.

    They are neither scaled by sqrt(C) nor have positions yet, so that the position of a dropped word remains. As in the
    released code, an encoder keeps nothing, and a decoder, by ``keep_first``, its start symbol.
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
