"""``--diverse-beam-groups`` ends in "IndexError: index ... is out of bounds" with more than one batch of sentences.

fairseq counts the words that groups share by the place of a sentence in its batch, and looks them up by the number that
the sentence has in the data set. Not reported upstream so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.search import DiverseBeamSearch


def step_by_place(take_step: Callable[..., Any], search: Any, step: int, *given: Any) -> Any:
    """``DiverseBeamSearch.step``, which gets for each sentence its place in the batch of the first step."""
    *others, numbers = given
    if step == 0:
        search.numbers = numbers
    places = (numbers.unsqueeze(1) == search.numbers).nonzero()[:, 1]
    return take_step(search, step, *others, places)


WRAPPED = ((DiverseBeamSearch, "step", step_by_place),)
