"""Queries, keys and values of an attention that computes its weights itself, with fairseq's decoding cache.

In a search B may be W times the number N of sentences whose keys the cache holds. The queries of a sentence then attend
together, as if they were W times T positions.
"""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor


def keys_and_values(
    attention: Any,
    key: Tensor | None,
    key_padding_mask: Tensor | None,
    incremental_state: dict[str, dict[str, Tensor | None]] | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return keys and values, ``(B, H, S, D)``, and pads, ``(B, S)``, of ``key``, ``(S, B, C)``, and of the cache.

    Those of the source are computed once per sentence, those of the target once per step.
    """
    # Only in a search: the cache is looked up by a name of its own for each layer, which no compiled code could share.
    cached = {} if incremental_state is None else attention._get_input_buffer(incremental_state)
    if attention.encoder_decoder_attention and "prev_key" in cached:
        return cached["prev_key"], cached["prev_value"], cached.get("prev_key_padding_mask")
    assert key is not None
    heads = (*key.shape[:2], attention.num_heads, attention.head_dim)
    keys, values = (linear(key).view(heads).permute(1, 2, 0, 3) for linear in (attention.k_proj, attention.v_proj))
    pads = key_padding_mask
    if "prev_key" in cached:
        keys, values = torch.cat([cached["prev_key"], keys], dim=2), torch.cat([cached["prev_value"], values], dim=2)
        pads = MultiheadAttention._append_prev_key_padding_mask(
            key_padding_mask, cached.get("prev_key_padding_mask"), key.size(1), keys.size(2), False
        )
    if incremental_state is not None:
        keys, values = keys.contiguous(), values.contiguous()
        state = {"prev_key": keys, "prev_value": values, "prev_key_padding_mask": pads}
        attention._set_input_buffer(incremental_state, state)
    return keys, values, pads


def by_sentence(attention: Any, queries: Tensor, sentences: int) -> Tensor:
    """Reshape ``(T, N * W, C)`` to ``(N, H, W * T, D)``."""
    grouped = queries.reshape(len(queries), sentences, -1, attention.num_heads, attention.head_dim)
    return grouped.permute(1, 3, 2, 0, 4).flatten(2, 3)


def by_position(contexts: Tensor, length: int) -> Tensor:
    """Reshape ``(N, H, W * T, D)``, with T the ``length``, to ``(T, N * W, C)``."""
    by_step = contexts.view(*contexts.shape[:2], -1, length, contexts.size(3)).permute(3, 0, 2, 1, 4)
    return by_step.flatten(3).flatten(1, 2)


def by_head(probabilities: Tensor, length: int, each: bool) -> Tensor:
    """Return weights ``(H, N * W, T, S)`` of ``(N, H, W * T, S)``; without ``each`` their mean over the heads."""
    weights = probabilities.transpose(0, 1).reshape(probabilities.size(1), -1, length, probabilities.size(3))
    return weights if each else weights.mean(dim=0)
