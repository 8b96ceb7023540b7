"""Tiny models and batches without any data on disk: for every architecture, method and combination of their parts.

``tiny`` makes a model of an architecture from settings, whether it translates, models language or hears speech.
``build`` makes that of a case from flags, as a user gives them; a case is the name of a registered method or of a
combination.
"""

from __future__ import annotations

import copy
import functools
from argparse import Namespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, build_model
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.speech_to_text import SpeechToTextTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

from fairseq_plugins.core.architectures import refusals
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.method import METHODS
from fairseq_plugins.core.model import MODEL_NAME, DeepTransformerModel
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.errors import flag

WORDS = 40
"""Size of the vocabulary, with fairseq's four special tokens."""
FEATURES = 8
"""Width of a frame of speech."""


def _stack(name: str, layers: int) -> dict[str, Any]:
    sizes = {"embed_dim": 16, "ffn_embed_dim": 32, "layers": layers, "attention_heads": 2}
    return {f"{name}_{size}": value for size, value in sizes.items()}


TINY = {**_stack("encoder", 3), **_stack("decoder", 2)}
"""Unequal depths, so that a mix-up of the two stacks shows."""
TINY_LANGUAGE_MODEL = {**_stack("decoder", 3), "max_target_positions": 64}
TINY_SPEECH_TO_TEXT = {
    **{**TINY, "conv_channels": 12, "conv_out_channels": 6, "input_feat_per_channel": FEATURES, "input_channels": 1},
    **{"max_source_positions": 80, "max_target_positions": 40},
}
# The decoder is as wide as the encoder.
SIZES = [word for name in TINY if name != "decoder_embed_dim" for word in (flag(name), str(TINY[name]))]
COMBINATIONS: dict[str, str] = {
    "word_dropout": "--word-dropout 0.2,0.3",
    "norm_on_top": "--norm-position none --residual b2t --norm-on-top yes",
    "b2t_matt": "--residual b2t --attention matt",
    "scaled_aan_ffn": "--norm-position layernorm_scaling --attention aan --aan-ffn yes",
    "admin_matt": "--residual admin --attention matt --base-init xavier",
    "admin_paper": "--residual admin --admin-profile paper",
    "admin_frozen": "--residual admin --admin-omega frozen",
    "admin_scalar": "--residual admin --admin-scale scalar",
    "deepnorm_matt": "--residual deepnorm --init deepnorm --attention matt",
    "deepnorm_released": "--residual deepnorm --init deepnorm --deepnorm-init released",
    "admin_torch_trained": "--residual admin_torch --admin-torch-omega trained",
    "dlcl_window": (
        "--norm-position pre --norm-type dyt --attention matt_self"
        " --layer-aggregation dlcl --dlcl-window 2 --dlcl-weights dimension --dlcl-normalised yes"
    ),
    "realformer_mean": "--norm-position mix --norm-type derf --attention realformer --realformer-logits mean",
    "sub_ln_denseformer": "--norm-position sub --attention realformer --layer-aggregation denseformer",
    "branch_norm_qk": "--residual branch_norm --attention qk_norm",
    "resi_dual_matt": "--residual resi_dual --attention matt_aan",
    "b2t_heads": "--residual b2t --b2t-skip all --attention head_scale --norm-type rms_norm",
    "deepscale_aan": "--norm-position pre --residual deepscale --attention aan",
    "normformer_released": (
        "--norm-position normformer --attention head_scale --head-scale-at output --residual res_scale"
    ),
    "hyper_static_gated": (
        "--norm-position pre --residual hyper --hyper-weights static --attention gated --gated-by head"
    ),
    "blocks_trained_values": (
        "--norm-position pre --residual attention_residual --attention-residual-blocks 2 "
        "--attention-residual-begin sub_layer --attention value_residual --value-residual-mix trained"
    ),
    "rezero_per_sublayer": "--residual rezero --norm-position none --rezero-alpha-per sublayer",
}
CASES: dict[str, tuple[str, ...]] = {
    **{name: ("--arch", f"{name}_transformer") for name in METHODS},
    **{name: ("--arch", MODEL_NAME, *flags.split()) for name, flags in COMBINATIONS.items()},
}
"""Every registered method, so that a new one is tested without an edit here, and combinations of parts.

A combination of several structures makes one test of what would be several (``tests/representatives.py``).
"""


@functools.cache
def dictionary(size: int = WORDS) -> Dictionary:
    """``size`` types, fairseq's four special ones among them."""
    words = Dictionary()
    for number in range(size - len(words)):
        words.add_symbol(f"w{number}")
    return words


@functools.cache
def task(source: int = WORDS, target: int = WORDS) -> TranslationTask:
    """Translation with dictionaries of these sizes; one and the same dictionary where the sizes are equal."""
    return TranslationTask(TranslationConfig(), dictionary(source), dictionary(target))


@functools.cache
def language_modeling(words: int = WORDS) -> LanguageModelingTask:
    """Language modelling with a dictionary of this size."""
    return LanguageModelingTask(LanguageModelingConfig(tokens_per_sample=64), dictionary(words))


@functools.cache
def speech_to_text(words: int = WORDS) -> SpeechToTextTask:
    """Transcription with a dictionary of this size, without the files that fairseq's own constructor reads."""
    made = SpeechToTextTask.__new__(SpeechToTextTask)
    made.tgt_dict = dictionary(words)
    return made


@functools.cache
def methods_of(model: type[DesignedModel]) -> list[str]:
    """The methods that the family of a model can have, and ``deep``, the model without one."""
    return ["deep", *(name for name, method in METHODS.items() if not refusals(model.config_class, method))]


# Batches -------------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Source ``(B, S)`` with left pads, its lengths ``(B)``, shifted target ``(B, T)`` and target, with right pads."""

    source: Tensor
    lengths: Tensor
    previous: Tensor
    target: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs of the model."""
        return self.source, self.lengths, self.previous

    def rows(self, start: int, stop: int) -> Batch:
        """Some of the sentences, with the pads they have."""
        return Batch(*(part[start:stop] for part in self))


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


def text(seed: int = 3) -> tuple[Tensor, Tensor]:
    """Input and target of a language model, ``(3, 9)``: all sentences end, the last is shorter, with pads behind it."""
    return _shifted(9, torch.Generator().manual_seed(seed))


def _shifted(length: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    words = dictionary()
    target = torch.randint(words.nspecial, len(words), (3, length), generator=draw)
    target[:, -1] = words.eos()
    target[-1, -3] = words.eos()
    target[-1, -2:] = words.pad()
    return torch.cat([torch.full((3, 1), words.eos()), target[:, :-1]], dim=1), target


def speech(seed: int = 3) -> Batch:
    """Features ``(3, 31, FEATURES)`` with silence behind the shorter ones, in place of the words of a source."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([31, 27, 18])
    features = torch.randn(3, 31, FEATURES, generator=draw)
    features[torch.arange(31) >= lengths.unsqueeze(1)] = 0.0
    return Batch(features, lengths, *_shifted(6, draw))


def logits(model: nn.Module, data: Batch, seed: int | None = None) -> Tensor:
    """Output of the model, ``(B, T, V)``; ``seed`` fixes the dropout masks."""
    if seed is not None:
        torch.manual_seed(seed)
    return model(*data.inputs)[0]


def loss_of(model: nn.Module, data: Batch) -> Tensor:
    """Cross-entropy, summed over the tokens of the batch; a scalar in float32."""
    logs, target = logits(model, data).float().flatten(0, 1), data.target.flatten()
    return F.cross_entropy(logs, target, ignore_index=dictionary().pad(), reduction="sum")


# Models from settings ------------------------------------------------------------------------------------------------


def settings(arch: str, **values: Any) -> Namespace:
    """Arguments of ``fairseq-train --arch arch`` with settings named as in Python, before a model is built."""
    namespace = Namespace(arch=arch, **values)
    ARCH_CONFIG_REGISTRY[arch](namespace)
    return namespace


def _of_its_family(arch: str, source: int, target: int) -> tuple[FairseqTask, dict[str, Any]]:
    """The task of an architecture, and its tiny sizes."""
    if "_lm" in arch:
        return language_modeling(target), TINY_LANGUAGE_MODEL
    if "s2t_" in arch:
        return speech_to_text(target), TINY_SPEECH_TO_TEXT
    return task(source, target), TINY


def full(arch: str, source: int = WORDS, target: int = WORDS, **values: Any) -> nn.Module:
    """The model of ``arch`` with these settings; default: the sizes of the architecture."""
    return ARCH_MODEL_REGISTRY[arch].build_model(settings(arch, **values), _of_its_family(arch, source, target)[0])


def tiny(arch: str, seed: int = 1, source: int = WORDS, target: int = WORDS, **values: Any) -> nn.Module:
    """A tiny model of ``arch``; the same ``seed`` gives the same weights."""
    torch.manual_seed(seed)
    return full(arch, source, target, **{**_of_its_family(arch, source, target)[1], **values})


def count(arch: str, source: int = WORDS, target: int = WORDS, **values: Any) -> int:
    """Number of trained parameters (shared ones once) of a model without allocated memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in full(arch, source, target, **values).parameters())


def residuals(stack: nn.Module) -> dict[str, Residual]:
    """The residual connections of a stack by their names, in the order in which they run."""
    return {name: module for name, module in stack.named_modules() if isinstance(module, Residual)}


# Models from flags, by case -------------------------------------------------------------------------------------------


@functools.cache
def _parse(flags: tuple[str, ...]) -> Namespace:
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, ["data", *SIZES, *flags])


def configuration(*flags: str) -> Namespace:
    """Arguments of ``fairseq-train`` with the flags of the tiny sizes, then ``flags``."""
    return copy.deepcopy(_parse(flags))


def build(*flags: str, seed: int = 1) -> DeepTransformerModel:
    """A new model for ``flags``, for instance those of a case, its weights drawn from ``seed``."""
    config = configuration(*flags)
    torch.manual_seed(seed)
    return build_model(config, task())


def perturb(model: nn.Module, size: float = 0.1) -> None:
    """Move every parameter a little, as training would, so that nothing is at a special value such as zero.

    Embeddings of pads stay zero, as in training.
    """
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=draw))
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()


def trained(case: str, *flags: str, seed: int = 1) -> DeepTransformerModel:
    """The model of a case as if trained: it has seen data, and no parameter has its initial value. In eval mode."""
    model = build(*CASES[case], *flags, seed=seed)
    model.train()
    with torch.no_grad():
        model(*batch().inputs)
    perturb(model)
    return model.eval()
