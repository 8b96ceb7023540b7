"""``--diverse-beam-groups`` ends in "IndexError: index ... is out of bounds", ``--no-repeat-ngram-size`` does nothing.

* fairseq counts the words that groups share by the place of a sentence in its batch, and looks them up by the number
  that the sentence has in the data set: an error with more than one batch.
* Without fairseq's CUDA extension, which no wheel contains, the search hands over its buffer of all possible steps, and
  the last words of a hypothesis are looked for at the end of that: there are only pads. Here the buffer ends with the
  current step. https://github.com/facebookresearch/fairseq/issues/5206
"""

import math
from collections.abc import Callable
from typing import Any

from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import DiverseBeamSearch
from torch import Tensor


def step_by_place(take_step: Callable[..., Any], search: Any, step: int, *given: Any) -> Any:
    """``DiverseBeamSearch.step``, which gets for each sentence its place in the batch of the first step."""
    *others, numbers = given
    if step == 0:
        search.numbers = numbers
    places = (numbers.unsqueeze(1) == search.numbers).nonzero()[:, 1]
    return take_step(search, step, *others, places)


def block_up_to_this_step(
    block: Callable[..., Tensor], blocker: Any, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """``NGramRepeatBlock._no_repeat_ngram``; ``tokens`` (hypotheses, all steps), ``lprobs`` (hypotheses, words)."""
    if blocker.no_repeat_ngram_size == 1:  # fairseq blocks no repeated word even then
        # Skip the first token, which is the end mark.
        return lprobs.scatter_(1, tokens[:, 1 : step + 1], -math.inf)
    return block(blocker, tokens[:, : step + 1], lprobs, bsz, beam_size, step)


WRAPPED = ((DiverseBeamSearch, "step", step_by_place), (NGramRepeatBlock, "_no_repeat_ngram", block_up_to_this_step))
