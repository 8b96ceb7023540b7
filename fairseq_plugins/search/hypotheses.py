"""The state of a beam search: words and scores of its hypotheses, those that have ended, and who continues whom.

Legend: N sentences still in the batch, K hypotheses of each, W so far (1 at first, then K), C candidates of each.
"""

from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK = 128
"""Words in a block of :func:`best_of_rows`."""


class Candidates(NamedTuple):
    """The best continuations of each sentence, best first; each ``(N, C)``.

    Attributes:
        scores: sums of log-probabilities, float32.
        words: the new word.
        parents: which of the W hypotheses it continues.
    """

    scores: Tensor
    words: Tensor
    parents: Tensor


def best_of_rows(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest scores of each row of ``(R, V)`` and their places: ``(R, count)``, largest first.

    The largest numbers lie in the blocks whose maxima are the largest. Finding those is one pass that vectorises, and
    few words are left to sort.
    """
    rows, width = scores.size()
    blocks = width // BLOCK
    if blocks <= 2 * count:
        values, places = scores.topk(count)
        return values, places
    in_blocks = scores[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
    chosen = in_blocks.amax(dim=-1).topk(count)[1]
    starts = chosen.unsqueeze(-1) * BLOCK
    places = (starts + torch.arange(BLOCK, device=scores.device)).view(rows, -1)
    behind_blocks = torch.arange(blocks * BLOCK, width, device=scores.device).expand(rows, -1)
    places = torch.cat([places, behind_blocks], dim=1)
    values, order = scores.gather(1, places).topk(count)
    return values, places.gather(1, order)


def best_candidates(log_probabilities: Tensor, so_far: Tensor | None, sentences: int, count: int) -> Candidates:
    """Return the best continuations, those that ``fairseq.search.BeamSearch`` returns.

    Args:
        log_probabilities: of the next word, ``(N * W, V)``.
        so_far: sums of log-probabilities of the hypotheses, ``(N, W)``; None at the first step.
        sentences: N.
        count: C; fewer if the vocabulary has not as many words.
    """
    rows, vocabulary = log_probabilities.size()
    width = rows // sentences
    values, words = best_of_rows(log_probabilities, min(count, vocabulary))
    values = values.masked_fill(values.isnan(), float("-inf"))  # the largest come first, and NaN counts as larger
    values, words = values.view(sentences, width, -1), words.view(sentences, width, -1)
    if so_far is not None:
        values = values + so_far.unsqueeze(-1)
    of_a_row = values.size(-1)
    scores, places = values.flatten(1).topk(min(count, width * vocabulary - 1))
    parents = torch.div(places, of_a_row, rounding_mode="floor")
    return Candidates(scores, words.flatten(1).gather(1, places), parents)


def ranked(finished: list[list[dict[str, Tensor]]]) -> list[list[dict[str, Tensor]]]:
    """Return the ended hypotheses of each sentence, best first; one transfer from the device brings all scores."""
    scores = [hypothesis["score"] for ended in finished for hypothesis in ended]
    values = iter(torch.stack(scores).tolist() if scores else ())
    orders = [torch.tensor(list(islice(values, len(ended)))).sort(descending=True)[1].tolist() for ended in finished]
    return [[ended[place] for place in order] for ended, order in zip(finished, orders, strict=True)]


class Ancestry:
    """Which cached positions of its sentence each hypothesis continues, on the model's device.

    The caches of :mod:`fairseq_plugins.search.step_attention` hold keys and values of all hypotheses of a sentence side
    by side, in the order in which they were computed, and are never moved when hypotheses continue others. What moves
    is this table: minus infinity where a cached position belongs to another hypothesis.
    """

    def __init__(self, sentences: int, device: torch.device) -> None:
        self.sentences, self.width, self.length, self.device = sentences, 1, 0, device
        self._table = torch.zeros(sentences, 1, 0, device=device)
        self._bias: dict[torch.dtype, Tensor] = {}

    def begin_step(self) -> None:
        """Give each hypothesis a place in the caches for its new word."""
        own = torch.full((self.width, self.width), float("-inf"), device=self._table.device).fill_diagonal_(0.0)
        self._table = torch.cat([self._table, own.expand(self.sentences, -1, -1)], dim=2)
        self.length = self._table.size(2)
        self._bias = {}

    def bias(self, dtype: torch.dtype) -> Tensor:
        """Return the term to add to the attention logits of this step, ``(N, 1, W, length)``."""
        if dtype not in self._bias:
            self._bias[dtype] = self._table.unsqueeze(1).to(dtype)
        return self._bias[dtype]

    def follow(self, kept: Tensor | None, parents: Tensor) -> None:
        """Let hypotheses continue others, and sentences leave.

        Args:
            kept: numbers of the sentences that stay, ascending; None if all do.
            parents: whom each hypothesis of the kept sentences continues, ``(N, K)``.
        """
        table = self._table if kept is None else self._table.index_select(0, kept)
        self._table = table.gather(1, parents.unsqueeze(-1).expand(-1, -1, self.length))
        self.sentences, self.width = parents.size()


def matching(values: Any, kept: Tensor | None) -> Any:
    """Return the rows ``kept`` of a tensor; all if ``kept`` is None, and None for None."""
    return values if values is None or kept is None else values.index_select(0, kept)
