"""Overrides that shrink the recipe of a YAML file so that its whole chain runs in seconds on a CPU.

Method, optimizer, schedule, criterion, shared embeddings and decoding stay; only sizes and budgets shrink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

LAYERS, WIDTH, FFN_WIDTH, HEADS = 2, 32, 64, 2
UPDATES = 24
NOTE = (
    f"toy size: this tests the chain only; after {UPDATES} updates every training fails, and scores near 0 are expected"
)
"""For a report, so that nobody takes its numbers for results."""
_SIZES: Mapping[str, int] = {
    "_layers": LAYERS,
    "_ffn_embed_dim": FFN_WIDTH,
    "_embed_dim": WIDTH,
    "_output_dim": WIDTH,
    "_input_dim": WIDTH,
    "_attention_heads": HEADS,
}
"""By the end of a setting's name; the longest match counts."""
_BUDGET: Mapping[str, Mapping[str, Any]] = {
    "optimization": {"max_update": UPDATES, "max_epoch": 0, "update_freq": "[1]"},
    "dataset": {"max_tokens": 600, "num_workers": 0},
    "checkpoint": {"save_interval_updates": 4, "keep_interval_updates": 2},
}
_WHERE_THERE: Mapping[str, Mapping[str, Any]] = {
    "task": {"tokens_per_sample": 64},
    "lr_scheduler": {"warmup_updates": 4, "total_num_update": UPDATES, "lr_period_updates": UPDATES},
    "eval_lm": {"context_window": 16},
    "dataset": {"batch_size": "null"},
}
"""Only overridden if set: a schedule may have no warm-up, and a batch no number of sentences."""


def architecture(config: Path) -> str:
    """The model's architecture in ``config``."""
    return str(yaml.safe_load(config.read_text(encoding="utf-8"))["model"]["_name"])


def smaller(config: Path) -> tuple[str, ...]:
    """Hydra overrides that shrink the recipe in ``config``.

    Raises:
        OSError: it cannot be read.
    """
    recipe = yaml.safe_load(config.read_text(encoding="utf-8"))
    there = {
        group: {name: value for name, value in values.items() if name in (recipe.get(group) or {})}
        for group, values in _WHERE_THERE.items()
    }
    return tuple([*_sizes(recipe.get("model") or {}), *_settings(_BUDGET), *_settings(there)])


def _sizes(model: Mapping[str, Any]) -> Iterator[str]:
    for name in model:
        for ending, value in _SIZES.items():
            if name.endswith(ending):
                yield f"model.{name}={value}"
                break
        if name.endswith("_cutoff"):
            yield f"model.{name}='20,40'"


def _settings(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for group, values in groups.items():
        yield from (f"{group}.{name}={value}" for name, value in values.items())
