"""Language models straight from settings, tiny ones to run and large ones only to be measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from torch import Tensor, nn

from tests.building import dictionary, settings

WORDS = 44
TINY: dict[str, Any] = {
    "decoder_embed_dim": 16,
    "decoder_ffn_embed_dim": 32,
    "decoder_layers": 3,
    "decoder_attention_heads": 2,
    "max_target_positions": 64,
}


@cache
def task(words: int = WORDS) -> LanguageModelingTask:
    return LanguageModelingTask(LanguageModelingConfig(tokens_per_sample=64), dictionary(words))


def build(arch: str, **values: Any) -> nn.Module:
    """The model of ``arch`` with these settings, in the sizes of the architecture unless said otherwise."""
    return ARCH_MODEL_REGISTRY[arch].build_model(settings(arch, **values), task())


def tiny(arch: str, seed: int = 1, **values: Any) -> nn.Module:
    """A tiny model of ``arch``; the same ``seed`` gives the same weights."""
    torch.manual_seed(seed)
    return build(arch, **{**TINY, **values})


def tokens(sentences: int = 3, length: int = 9, seed: int = 3) -> Tensor:
    """Random text ``(B, T)`` behind the end of a sentence, with pads on the right of the last."""
    words = dictionary(WORDS)
    generator = torch.Generator().manual_seed(seed)
    result = torch.randint(words.nspecial, WORDS, (sentences, length), generator=generator)
    result[:, 0] = words.eos()
    result[-1, length - 2 :] = words.pad()
    return result
