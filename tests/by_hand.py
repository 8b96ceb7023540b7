"""Attentions computed one position, sentence and head at a time, from the papers' equations.

Legend: T target time, S source time, B batch, C width. ``seen[b][t]`` lists the positions that query t of sentence b
may look at.
"""

import math
from typing import Any

import torch
from torch import Tensor

Seen = list[list[list[int]]]


def pads_of(lengths: list[int], left: bool = False) -> Tensor | None:
    """Padding mask ``(B, T)`` of sentences of these lengths, on the right or on the left; None without pads."""
    pads = torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1)
    return (pads.flip(1) if left else pads) if pads.any() else None


def no_pads(pads: Tensor | None, length: int, sentences: int) -> Tensor:
    """``(B, T)``, true where there is a word."""
    return torch.ones(sentences, length, dtype=torch.bool) if pads is None else ~pads


def seen_so_far(valid: Tensor) -> Seen:
    """Words up to and including each position; ``valid`` is ``(B, T)``."""
    return [[[k for k in range(t + 1) if row[k]] for t in range(len(row))] for row in valid]


def seen_anywhere(valid: Tensor, queries: int) -> Seen:
    """All words, at every query."""
    return [[[k for k in range(len(row)) if row[k]]] * queries for row in valid]


def average(values: Tensor, seen: Seen) -> Tensor:
    """Mean of the values seen, ``(T, B, C)``; zero where none is."""
    result = torch.zeros_like(values)
    for b, sentence in enumerate(seen):
        for t, positions in enumerate(sentence):
            if positions:
                result[t, b] = sum(values[k, b] for k in positions) / len(positions)
    return result


def gated_average(module: Any, z: Tensor, seen: Seen) -> Tensor:
    """sigmoid(i) z + sigmoid(f) g, [i; f] = W [z; g] + b; i is the upper half of the product."""
    g, width = average(z, seen), z.size(-1)
    if hasattr(module.ffn, "fc1"):
        g = module.ffn.fc2(module.ffn.fc1(g).clamp(min=0))
    weight, bias = module.gate.weight, module.gate.bias
    i = z @ weight[:width, :width].t() + g @ weight[:width, width:].t() + bias[:width]
    f = z @ weight[width:, :width].t() + g @ weight[width:, width:].t() + bias[width:]
    return z / (1 + torch.exp(-i)) + g / (1 + torch.exp(-f))


def softmax_attention(module: Any, x: Tensor, h: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
    """Output ``(T, B, C)`` and weights ``(H, B, T, S)``: heads of softmax(q k^T / sqrt(C / H)) v, then the output map.

    Zero where a query sees nothing.
    """
    heads, width = module.num_heads, x.size(-1) // module.num_heads
    context, weights = torch.zeros_like(x), torch.zeros(heads, x.size(1), x.size(0), h.size(0))
    for b, sentence in enumerate(seen):
        for t, positions in enumerate(sentence):
            if not positions:
                continue
            q, k, v = module.q_proj(x[t, b]), module.k_proj(h[positions, b]), module.v_proj(h[positions, b])
            for head in range(heads):
                part = slice(head * width, (head + 1) * width)
                found = torch.softmax(k[:, part] @ q[part] / math.sqrt(width), dim=0)
                weights[head, b, t, positions] = found
                context[t, b, part] = found @ v[:, part]
    return module.out_proj(context), weights
