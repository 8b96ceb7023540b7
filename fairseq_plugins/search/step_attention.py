"""fairseq's attention, one step of a search at a time: caches that are written in place and never re-ordered.

``fairseq.modules.MultiheadAttention`` keeps keys and values of each hypothesis apart, and copies them all twice. Those
of a sentence are held here once, and its hypotheses attend together: one product instead of K thin ones.

Legend: N sentences, W hypotheses of each, L cached target positions of a sentence, S source time, C width, H heads, D
width of a head.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.search.hypotheses import Ancestry
from fairseq_plugins.wrapping import replaced

FIRST_STEPS = 8
"""Steps for which a cache has room at first; it then doubles."""


class Cached:
    """Keys and values of one attention, ``(N, room, H, D)`` each, of which the first ``used`` positions count.

    With ``places`` ``(W)``, on the device, new words are written there; then the whole room counts.
    """

    places: Tensor | None = None

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.pair, self.used = [keys, values], keys.size(1)

    def append(self, *new: Tensor) -> None:
        """Write keys and values ``(N, W, H, D)`` behind the used positions."""
        if self.places is not None:
            for old, added in zip(self.pair, new, strict=True):
                old.index_copy_(1, self.places, added)
            return
        width = new[0].size(1)
        end = self.used + width
        for place, (old, added) in enumerate(zip(self.pair, new, strict=True)):
            if end > old.size(1):
                room = max(FIRST_STEPS * width, 2 * old.size(1))
                larger = old.new_empty(old.size(0), room, *old.shape[2:])
                larger[:, : self.used] = old[:, : self.used]
                self.pair[place] = old = larger
            old[:, self.used : end] = added
        self.used = end

    def keep(self, sentences: list[int], index: Tensor) -> None:
        """Keep only these sentences, ascending; ``index`` is the same on the device."""
        for place, old in enumerate(self.pair):
            if old.device.type != "cpu":
                self.pair[place] = old.index_select(0, index)
                continue
            for to, since in enumerate(sentences):  # ascending, hence nothing is overwritten before it is moved
                if to != since:
                    old[to, : self.used] = old[since, : self.used]
            self.pair[place] = old[: len(sentences)]


class DecodingState(dict[str, Any]):
    """fairseq's decoding cache of one model, and the caches of its step attentions.

    Args:
        ancestry: of the search's hypotheses.
    """

    def __init__(self, ancestry: Ancestry) -> None:
        super().__init__()
        self.ancestry = ancestry
        self.target: dict[nn.Module, Cached] = {}
        self.source: dict[nn.Module, Cached] = {}
        self.source_bias: Tensor | None = None
        """Bias of the logits of cross-attentions, ``(N, 1, 1, S)``, if the source has pads."""


def has_steps(module: nn.Module) -> bool:
    """Whether :func:`attend` computes the same as this attention in eval mode."""
    if not isinstance(module, MultiheadAttention) or type(module).forward is not MultiheadAttention.forward:
        return False
    own_step = getattr(type(module), "attend", Attention.attend) is not Attention.attend
    if own_step and not getattr(module, "attends_by_forward", False):
        return False
    plain_mask = type(module).apply_sparse_mask is MultiheadAttention.apply_sparse_mask
    further = (module.bias_k is not None, module.add_zero_attn, module.use_xformers, module.onnx_trace)
    dropout = module.dropout_module.apply_during_inference
    return (module.self_attention or module.encoder_decoder_attention) and plain_mask and not any((*further, dropout))


def attend(
    module: Any,
    state: DecodingState,
    query: Tensor,
    key: Tensor | None,
    key_padding_mask: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """One step of ``MultiheadAttention.forward`` without its weights; other arguments do not matter to a step.

    Args:
        module: the attention.
        state: its model's caches.
        query: ``(1, N * W, C)``.
        key: the source ``(S, N, C)`` at the first step of a cross-attention; not read later.
        key_padding_mask: ``(N, S)``, true for pads; read with ``key``.

    Returns:
        output ``(1, N * W, C)``, and None for the weights.
    """
    ancestry, heads = state.ancestry, (module.num_heads, module.head_dim)
    grouped = (ancestry.sentences, ancestry.width, *heads)
    queries = module.q_proj(query).view(grouped).transpose(1, 2)
    if module.self_attention:
        keys, values = module.k_proj(query).view(grouped), module.v_proj(query).view(grouped)
        if module not in state.target:
            state.target[module] = Cached(keys[:, :0], values[:, :0])
        cached = state.target[module]
        cached.append(keys, values)
        bias: Tensor | None = ancestry.bias(queries.dtype)
    else:
        if module not in state.source:
            assert key is not None
            pads = None if state.source else key_padding_mask  # read by the first of the cross-attentions
            if pads is not None and bool(pads.any()):
                no_bias = torch.zeros(pads.shape, dtype=queries.dtype, device=pads.device)
                state.source_bias = no_bias.masked_fill_(pads.to(torch.bool), float("-inf"))[:, None, None]
            source = key.transpose(0, 1)
            projected = (project(source).unflatten(-1, heads) for project in (module.k_proj, module.v_proj))
            state.source[module] = Cached(*projected)
        cached, bias = state.source[module], state.source_bias
    keys, values = (kept[:, : cached.used].transpose(1, 2) for kept in cached.pair)  # (N, H, used, D)
    context = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, scale=module.scaling)
    return module.out_proj(context.transpose(1, 2).reshape(query.shape)), None


def forward(self: Any, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Any:
    """Stand in for ``MultiheadAttention.forward``: a step with a :class:`DecodingState`, fairseq's own without."""
    state = options.get("incremental_state")
    if isinstance(state, DecodingState):
        return attend(self, state, query, key, **options)
    return type(self).forward(self, query, key, value, **options)


@contextmanager
def in_steps(decoder: nn.Module, beam: int) -> Iterator[None]:
    """Switch the attentions of ``decoder`` to steps, and skip attention weights that were not requested.

    An attention with steps of its own gets ``beam``, because the hypotheses of a sentence share its source.
    """
    with ExitStack() as stack:
        for module in decoder.modules():
            if has_steps(module):
                stack.enter_context(replaced(module, forward=types.MethodType(forward, module)))
            elif hasattr(module, "beam_size"):
                stack.enter_context(replaced(module, beam_size=beam))
            elif hasattr(module, "need_attn"):
                stack.enter_context(replaced(module, need_attn=False))
        yield
