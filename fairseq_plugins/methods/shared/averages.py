"""Averages over the target so far, for attentions without weights: over whole sequences and step by step.

Pads never enter an average, and the rows of pads are zero, as in the released code of AAN and of merged attention.
Legend: T time, B batch, C width.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attended, AttendOptions


def causal_average(values: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Return the mean over the valid positions up to each one, ``(T, B, C)``; rows of pads are zero.

    A product with the matrix of weights 1/t is several times faster than a cumulative sum, and its sums stay in the
    range of half precision. With pads on the left, t is more than the number of valid positions so far.
    """
    length, batch, width = values.size()
    steps = torch.arange(1, length + 1, device=values.device, dtype=torch.float32).view(-1, 1)
    weights = (torch.ones_like(steps @ steps.t()).tril() / steps).type_as(values)
    if padding_mask is None:
        return (weights @ values.reshape(length, batch * width)).view(length, batch, width)
    valid = torch.logical_not(padding_mask).transpose(0, 1).unsqueeze(-1).type_as(values)
    average = (weights @ (values * valid).reshape(length, batch * width)).view(length, batch, width)
    counts = valid.float().cumsum(dim=0).clamp(min=1)
    return average * (valid * (steps.unsqueeze(-1) / counts).type_as(values))


class RunningAverage(FairseqIncrementalState, nn.Module):
    """Mean over the positions so far. In decoding each step costs O(1) time and memory.

    The state is the sum ``(B, C)`` and the count ``(B, 1)`` of the steps so far, float32, which follow the beams.
    """

    if TYPE_CHECKING:  # mypy cannot see them behind ``nn.Module.__getattr__``
        get_incremental_state: Any
        set_incremental_state: Any

    def forward(
        self,
        values: Tensor,
        padding_mask: Tensor | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
        causal: bool,
    ) -> Tensor:
        """Average.

        Args:
            values: ``(T, B, C)``; with a decoding state only the new steps, one or more.
            padding_mask: ``(B, T)``, true for pads.
            incremental_state: fairseq's decoding cache, or None.
            causal: average up to each position; else, without a decoding state, over the whole sequence.

        Returns:
            ``(T, B, C)``, zero in the rows of pads.
        """
        if incremental_state is None and causal:
            return causal_average(values, padding_mask)
        # Sums of the values so far, (T, B, C), and counts, (T, B, 1), without pads, in float32.
        if padding_mask is None:
            steps = torch.arange(1, values.size(0) + 1, device=values.device, dtype=torch.float32)
            totals, counts = values.float().cumsum(dim=0), steps.view(-1, 1, 1).expand(-1, values.size(1), 1)
        else:
            valid = torch.logical_not(padding_mask).transpose(0, 1).unsqueeze(-1).float()
            totals, counts = (values.float() * valid).cumsum(dim=0), valid.cumsum(dim=0)
        if incremental_state is None:
            totals, counts = totals[-1:], counts[-1:]
        else:
            state = self.get_incremental_state(incremental_state, "average_state")
            if state is not None:
                totals, counts = totals + state["sum"], counts + state["count"]
            self.set_incremental_state(incremental_state, "average_state", {"sum": totals[-1], "count": counts[-1]})
        average = (totals / counts.clamp(min=1)).type_as(values).expand(values.size(0), -1, -1)
        if padding_mask is None:
            return average
        return average.masked_fill(padding_mask.transpose(0, 1).unsqueeze(-1), 0.0)

    def reorder_incremental_state(
        self, incremental_state: dict[str, dict[str, Tensor | None]] | None, new_order: Tensor
    ) -> dict[str, dict[str, Tensor | None]] | None:
        """Reorder the decoding state with the beams."""
        state = self.get_incremental_state(incremental_state, "average_state")
        if state is not None:
            rows = {name: value.index_select(0, new_order) for name, value in state.items()}
            incremental_state = self.set_incremental_state(incremental_state, "average_state", rows)
        return incremental_state


class AverageAttention(nn.Module):
    """sigmoid(i) * z + sigmoid(f) * g with [i; f] = W [z; g] + b; g is the mean of the inputs z so far.

    Zhang, Xiong and Su, ACL 2018, https://arxiv.org/abs/1805.00631, equations 1 to 3; with an ``ffn_width`` g is the
    output of a feed-forward network for the mean. W, ``(2C, 2C)``, is drawn from Xavier's uniform distribution and b
    starts at zero. ``heads`` is kept because layers read the number from their self-attention; ``unused`` are further
    arguments of an attention. The network always has relu, as in the paper, for any activation of the layer's own.
    """

    def __init__(
        self, width: int, heads: int, ffn_width: int = 0, activation_dropout: float = 0.0, **unused: Any
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.average = RunningAverage()
        self.ffn: nn.Module = nn.Identity()
        if ffn_width:
            fc1, fc2 = nn.Linear(width, ffn_width), nn.Linear(ffn_width, width)
            dropout = FairseqDropout(activation_dropout, module_name="AverageFeedForward")
            parts = OrderedDict(fc1=fc1, relu=nn.ReLU(), activation_dropout_module=dropout, fc2=fc2)
            self.ffn = nn.Sequential(parts)
        self.gate = nn.Linear(2 * width, 2 * width)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def attend(self, query: Tensor, key: Tensor | None, *args: Any, **kwargs: Any) -> Attended:
        """See :meth:`fairseq_plugins.core.attention.Attention.attend`; there are no weights to return."""
        given = AttendOptions(*args, **kwargs)
        causal = given.future_mask is not None
        average = self.ffn(self.average(query, given.query_padding_mask, given.incremental_state, causal))
        of_input, of_average = torch.sigmoid(self.gate(torch.cat([query, average], dim=-1))).chunk(2, dim=-1)
        return of_input * query + of_average * average, None, given.prev_logits
