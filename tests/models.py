"""Tiny models and batches without any data on disk, for every method and for combinations of their parts.

A case is the name of a registered method or of a combination. All sentences are made of 36 words and fairseq's four
special tokens.
"""

from __future__ import annotations

import copy
import functools
from argparse import Namespace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import build_model
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.core.model import MODEL_NAME, DeepTransformerModel

SIZES = (
    "--encoder-layers 3 --decoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32"
    " --decoder-ffn-embed-dim 32 --encoder-attention-heads 2 --decoder-attention-heads 2"
)
COMBINATIONS: dict[str, str] = {
    "word_dropout": "--word-dropout 0.2,0.3",
    "norm_on_top": "--norm none --residual b2t --norm-on-top yes",
    "b2t_matt": "--residual b2t --attention matt",
    "pre_ln_aan_ffn": "--norm pre --attention aan --aan-ffn yes",
    "admin_matt": "--residual admin --attention matt --base-init xavier",
    "admin_paper": "--residual admin --admin-profile paper",
    "admin_frozen": "--residual admin --admin-omega frozen",
    "admin_scalar": "--residual admin --admin-scale scalar",
    "deepnorm_matt": "--residual deepnorm --init deepnorm --attention matt",
    "deepnorm_released": "--residual deepnorm --init deepnorm --deepnorm-init released",
    "admin_torch_trained": "--residual admin_torch --admin-torch-omega trained",
    "dlcl_window": "--norm pre --history dlcl --dlcl-window 2 --dlcl-weights dimension --dlcl-normalised yes",
    "realformer_mean": "--attention realformer --realformer-logits mean",
    "rezero_per_sublayer": "--residual rezero --norm none --rezero-alpha-per sublayer",
}
CASES: dict[str, tuple[str, ...]] = {
    **{name: ("--arch", f"{name}_transformer") for name in METHODS},
    **{name: ("--arch", MODEL_NAME, *flags.split()) for name, flags in COMBINATIONS.items()},
}
"""Every registered method, so that a new one is tested without an edit here, and combinations of parts."""


class Batch(NamedTuple):
    """Source ``(B, S)`` with left pads, its lengths ``(B)``, shifted target ``(B, T)`` and target, with right pads."""

    source: Tensor
    lengths: Tensor
    previous: Tensor
    target: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the model takes."""
        return self.source, self.lengths, self.previous

    def rows(self, start: int, stop: int) -> Batch:
        """Some of the sentences, with the pads they have."""
        return Batch(*(part[start:stop] for part in self))


@functools.cache
def dictionary() -> Dictionary:
    """40 entries."""
    words = Dictionary()
    for number in range(36):
        words.add_symbol(f"w{number}")
    return words


@functools.cache
def task() -> TranslationTask:
    """Translation between two languages of one dictionary."""
    return TranslationTask(TranslationConfig(), dictionary(), dictionary())


@functools.cache
def _parse(flags: tuple[str, ...]) -> Namespace:
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, ["data", *SIZES.split(), *flags])


def configuration(*flags: str) -> Namespace:
    """What ``fairseq-train`` makes of ``flags``, which follow those of the tiny sizes."""
    return copy.deepcopy(_parse(flags))


def build(*flags: str, seed: int = 1) -> DeepTransformerModel:
    """A new model for ``flags``, for instance those of a case, its weights drawn from ``seed``."""
    config = configuration(*flags)
    torch.manual_seed(seed)
    return build_model(config, task())


def batch(sentences: int = 4, longest: int = 7, seed: int = 3) -> Batch:
    """``sentences`` random pairs of different lengths, the first of each side the longest; each ends in ``</s>``."""
    words, draw = dictionary(), torch.Generator().manual_seed(seed)
    pad, end = words.pad(), words.eos()
    source = torch.randint(words.nspecial, len(words), (sentences, longest), generator=draw)
    target = torch.randint(words.nspecial, len(words), (sentences, longest - 1), generator=draw)
    source[:, -1] = end
    lengths = torch.full((sentences,), longest)
    for row in range(sentences):
        cut, target_cut = row % (longest - 2), (2 * row) % (longest - 3)
        lengths[row] -= cut
        source[row, :cut] = pad
        last = longest - 2 - target_cut
        target[row, last] = end
        target[row, last + 1 :] = pad
    previous = torch.cat([torch.full((sentences, 1), end), target[:, :-1]], dim=1)
    previous[target == pad] = pad
    return Batch(source, lengths, previous, target)


def loss_of(model: nn.Module, data: Batch) -> Tensor:
    """Cross-entropy, summed over the tokens of the batch; a scalar in float32."""
    logits = model(*data.inputs)[0]
    return F.cross_entropy(
        logits.float().flatten(0, 1), data.target.flatten(), ignore_index=dictionary().pad(), reduction="sum"
    )


def perturb(model: nn.Module, size: float = 0.1, seed: int = 7) -> None:
    """Move every parameter a little, as training would, so that nothing is at a special value such as zero.

    Embeddings of pads stay zero, as in training.
    """
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=draw))
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()


def trained(case: str, *flags: str, seed: int = 1, data: Batch | None = None) -> DeepTransformerModel:
    """The model of a case as if it had been trained: it has seen data and nothing is at its start. In eval mode."""
    model = build(*CASES[case], *flags, seed=seed)
    model.train()
    with torch.no_grad():
        model(*(data or batch()).inputs)
    perturb(model)
    return model.eval()
