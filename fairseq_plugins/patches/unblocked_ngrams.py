"""``--no-repeat-ngram-size`` has no effect without fairseq's CUDA extension, which no wheel contains.

https://github.com/facebookresearch/fairseq/issues/5206

The search hands over its buffer of all possible steps, and the last words of a hypothesis are looked for at the end of
that: there are only pads. Here the buffer ends with the current step. Of single words fairseq blocks none even then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import Tensor


def block_up_to_this_step(
    block: Callable[..., Tensor], blocker: Any, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """``NGramRepeatBlock._no_repeat_ngram``; ``tokens`` (hypotheses, all steps), ``lprobs`` (hypotheses, words)."""
    if blocker.no_repeat_ngram_size == 1:
        # Skip the first token, which is the end mark.
        return lprobs.scatter_(1, tokens[:, 1 : step + 1], -math.inf)
    return block(blocker, tokens[:, : step + 1], lprobs, bsz, beam_size, step)


WRAPPED = ((NGramRepeatBlock, "_no_repeat_ngram", block_up_to_this_step),)
"""The block that runs without the extension."""
