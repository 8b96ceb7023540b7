"""``--diverse-beam-groups`` ends in "IndexError: index ... is out of bounds" with more than one batch of sentences.

fairseq counts the words that groups share by the place of a sentence in its batch, and looks them up by the number that
the sentence has in the data set. Not reported upstream so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.search import DiverseBeamSearch
from torch import Tensor


def step_by_place(
    take_step: Callable[..., Any],
    search: Any,
    step: int,
    lprobs: Tensor,
    scores: Tensor,
    prev_output_tokens: Tensor | None = None,
    original_batch_idxs: Tensor | None = None,
) -> Any:
    """``DiverseBeamSearch.step``, which gets for each sentence its place in the batch of the first step."""
    if step == 0:
        search.numbers = original_batch_idxs
    places = (original_batch_idxs.unsqueeze(1) == search.numbers).nonzero()[:, 1]  # type: ignore[union-attr]
    return take_step(search, step, lprobs, scores, prev_output_tokens, places)


WRAPPED = ((DiverseBeamSearch, "step", step_by_place),)
