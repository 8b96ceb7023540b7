"""Whether a batch has pads is known before the batch is sent to a GPU.

The model would ask the GPU twice in each update, and the host would wait each time until the GPU has computed all that
was launched before. A CUDA graph cannot ask.
"""

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.core.stacks import HAS_PADS
from fairseq_plugins.wrapping import wrap

DICTIONARIES = {"src_tokens": "source_dictionary", "prev_output_tokens": "target_dictionary"}
"""Inputs of a model that are batches of tokens, and the task's dictionary of each."""


def prepare(prepare: Callable[..., Any], trainer: Trainer, sample: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer._prepare_sample`` that marks the batches of tokens which it sends to a GPU."""
    inputs = sample.get("net_input", {}) if trainer.cuda and isinstance(sample, dict) else {}
    padded = {}
    for name, dictionary in DICTIONARIES.items():
        tokens, words = inputs.get(name), getattr(trainer.task, dictionary, None)
        if isinstance(tokens, Tensor) and not tokens.is_cuda and not tokens.is_floating_point() and words is not None:
            padded[name] = bool(tokens.eq(words.pad()).any())
    prepared, is_dummy = prepare(trainer, sample, *args, **kwargs)
    for name, known in padded.items():
        setattr(prepared["net_input"][name], HAS_PADS, known)
    return prepared, is_dummy


wrap(Trainer, "_prepare_sample", prepare)
