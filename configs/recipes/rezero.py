"""Recipes of ReZero on enwik8 (Bachlechner et al., UAI 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Tuple

from recipes.common import (
    LOG,
    Config,
    Noted,
    Recipe,
    merged,
    not_stated,
    rates,
    size,
)

ENWIK8 = Recipe(
    corpus="enwik8 in bytes: the first 90 million to train, 5 million each to validate and to test",
    data='scripts/prepare_enwik8.sh',
    source="the paper",
    settings={
        "common": {"seed": not_stated(1, "fairseq's default"), **LOG},
        "task": {"_name": "language_modeling", "data": "???", "tokens_per_sample": 512, "sample_break_mode": "none"},
        "criterion": {"_name": "cross_entropy"},
        "optimizer": {"_name": Noted("adam", "LAMB in the paper, which fairseq has only with NVIDIA's apex")},
        "lr_scheduler": {"_name": "fixed", "warmup_updates": 0},
        "dataset": {"required_batch_size_multiple": 1},
        "optimization": {
            "lr": not_stated([0.001], "and LAMB's would not fit Adam"),
            "clip_norm": not_stated(0.0, "no clipping is mentioned"),
            "max_update": not_stated(100000, "far beyond the 21,187 of the slowest model of Table 2"),
        },
        "checkpoint": {"no_epoch_checkpoints": True, "save_interval_updates": 1000, "keep_interval_updates": 1},
        "eval_lm": {"context_window": not_stated(400, "every byte sees at least so many before it")},
    },
    model={"share_decoder_input_output_embed": not_stated(True, "the printed counts fit one table"),
           **rates(0.2, not_stated(0.0, "fairseq's default"), not_stated(0.0, "fairseq's default")),
           "activation_fn": "gelu"},
    gpus=0,
    update_freq=24,
    remarks=(
        "Validated every 1,000 updates; finer where the update at which 1.2 bits per byte are reached matters:",
        "dataset.validate_interval_updates=100.",
    ),
)  # fmt: skip


def enwik8(samples: int, update_freq: int) -> Recipe:
    """The recipe with updates of ``samples * update_freq`` samples."""
    batch = Noted(samples * 512, f"{samples} samples; {samples * update_freq} an update")
    dataset = {"dataset": {"max_tokens": batch, "validate_interval_updates": 1000}}
    return replace(ENWIK8, settings=merged(ENWIK8.settings, dataset), update_freq=update_freq)


def configs() -> Iterator[Tuple[str, Config]]:
    """Those of the ReZero paper."""
    twelve = ("post_ln", "pre_ln", "gpt2_norm", "rezero_alpha_one", "rezero")
    models = [(12, 512, 45, 24, twelve), (64, 256, 19, 16, twelve[3:]), (128, 256, 9, 16, twelve[4:])]
    for depth, width, batch, update_freq, methods in models:
        shape = {name: value for name, value in size(width, 4 * width, 2).items() if name.startswith("decoder")}
        for method in methods:
            yield (
                f"enwik8/{method}_{depth}d",
                Config(enwik8(batch, update_freq), method, 0, depth, shape, family="_transformer_lm"),
            )
