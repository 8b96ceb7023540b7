"""Models straight from settings, without files or a command line: tiny ones to run, huge ones only to be counted."""

from __future__ import annotations

from argparse import Namespace
from functools import cache
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

from fairseq_plugins.core.residual import Residual

TINY: dict[str, Any] = {
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 32,
    "encoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_embed_dim": 16,
    "decoder_ffn_embed_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
}
"""Unequal depths, so that a mix-up of the two stacks shows."""


@cache
def dictionary(size: int = 44) -> Dictionary:
    """``size`` types, fairseq's four special ones among them."""
    result = Dictionary()
    for number in range(size - len(result)):
        result.add_symbol(f"w{number}")
    return result


@cache
def translation_task(source: int = 44, target: int = 44) -> TranslationTask:
    """A task with dictionaries of these sizes; one and the same dictionary where the sizes are equal."""
    return TranslationTask(TranslationConfig(), dictionary(source), dictionary(target))


def settings(arch: str, **values: Any) -> Namespace:
    """What ``fairseq-train --arch arch`` makes of settings named as in Python, before a model is built."""
    namespace = Namespace(arch=arch, **values)
    ARCH_CONFIG_REGISTRY[arch](namespace)
    return namespace


def build(arch: str, source: int = 44, target: int = 44, **values: Any) -> nn.Module:
    """The model of ``arch`` with these settings, in the sizes of the architecture unless said otherwise."""
    return ARCH_MODEL_REGISTRY[arch].build_model(settings(arch, **values), translation_task(source, target))


def tiny(arch: str, seed: int = 1, **values: Any) -> nn.Module:
    """A tiny model of ``arch``; the same ``seed`` gives the same weights."""
    torch.manual_seed(seed)
    return build(arch, **{**TINY, **values})


def count(arch: str, source: int = 44, target: int = 44, **values: Any) -> int:
    """Number of trained parameters, shared ones once, of a model that is never given memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(arch, source, target, **values).parameters())


class Batch(NamedTuple):
    """The inputs of a translation model, in the order of its ``forward``."""

    src_tokens: Tensor
    src_lengths: Tensor
    prev_output_tokens: Tensor


def batch(source: int = 7, target: int = 6, sentences: int = 3, seed: int = 3, vocabulary: int = 44) -> Batch:
    """Random sentences; pads on the left of a source and on the right of a target, as fairseq's collater puts them."""
    generator = torch.Generator().manual_seed(seed)
    words = dictionary(vocabulary)
    src = torch.randint(words.nspecial, vocabulary, (sentences, source), generator=generator)
    previous = torch.randint(words.nspecial, vocabulary, (sentences, target), generator=generator)
    previous[:, 0] = words.eos()
    if sentences > 1:
        src[1, : source // 3] = words.pad()
        previous[-1, target - target // 3 :] = words.pad()
    return Batch(src, src.ne(words.pad()).sum(dim=1), previous)


def residuals(stack: nn.Module) -> dict[str, Residual]:
    """The residual connections of a stack by their names, in the order in which they run."""
    return {name: module for name, module in stack.named_modules() if isinstance(module, Residual)}


def logits(model: nn.Module, inputs: Batch, seed: int | None = None) -> Tensor:
    """Output of the model, ``(B, T, V)``; ``seed`` fixes the dropout masks."""
    if seed is not None:
        torch.manual_seed(seed)
    return model(*inputs)[0]
