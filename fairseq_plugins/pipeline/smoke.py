"""Overrides that shrink the recipe of a YAML file so that its whole chain runs in seconds on a CPU.

Method, optimizer, schedule, criterion, shared embeddings and decoding stay; only sizes and budgets shrink.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

UPDATES = 24
NOTE = (
    f"toy size: this tests the chain only; after {UPDATES} updates every training fails, and scores near 0 are expected"
)
"""For a report, so that nobody takes its numbers for results."""
SIZES: Mapping[str, Any] = {
    "_layers": 2,
    "_ffn_embed_dim": 64,
    "_embed_dim": 32,
    "_output_dim": 32,
    "_input_dim": 32,
    "_attention_heads": 2,
    "_cutoff": "'20,40'",
}
"""Sizes of the model, by the end of a setting's name; the first match counts."""
BUDGET: Mapping[str, Any] = {
    "optimization.max_update": UPDATES,
    "optimization.max_epoch": 0,
    "optimization.update_freq": "[1]",
    "dataset.max_tokens": 600,
    "dataset.num_workers": 0,
    "checkpoint.save_interval_updates": 4,
    "checkpoint.keep_interval_updates": 2,
}
WHERE_SET: Mapping[str, Any] = {
    "task.tokens_per_sample": 64,
    "lr_scheduler.warmup_updates": 4,
    "lr_scheduler.total_num_update": UPDATES,
    "lr_scheduler.lr_period_updates": UPDATES,
    "eval_lm.context_window": 16,
    "dataset.batch_size": "null",
}
"""Only overridden where they are set: a schedule may have no warm-up, and a batch no number of sentences."""


def architecture(config: Path) -> str:
    """The model's architecture in ``config``."""
    return str(yaml.safe_load(config.read_text(encoding="utf-8"))["model"]["_name"])


def smaller(config: Path) -> tuple[str, ...]:
    """Hydra overrides that shrink the recipe in ``config``."""
    recipe = yaml.safe_load(config.read_text(encoding="utf-8"))
    configured = [f"{group}.{name}" for group, values in recipe.items() for name in values or {}]
    overrides: dict[str, Any] = {}
    for name in configured:
        sizes = [size for ending, size in SIZES.items() if name.startswith("model.") and name.endswith(ending)]
        overrides.update({name: sizes[0]} if sizes else {})
    overrides |= BUDGET
    overrides |= {name: value for name, value in WHERE_SET.items() if name in configured}
    return tuple(f"{name}={value}" for name, value in overrides.items())
