"""A recipe at toy size: what to override in a YAML file so that its whole chain runs in seconds on a CPU.

Everything that makes the recipe what it is stays: method, optimizer, schedule, criterion, shared tables, decoding. Only
sizes and budgets shrink.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator, Mapping

import yaml

LAYERS, WIDTH, FFN_WIDTH, HEADS = 2, 32, 64, 2
UPDATES = 16
_SIZES: Mapping[str, int] = {
    "_layers": LAYERS,
    "_ffn_embed_dim": FFN_WIDTH,
    "_embed_dim": WIDTH,
    "_output_dim": WIDTH,
    "_input_dim": WIDTH,
    "_attention_heads": HEADS,
}
"""By the end of a setting's name; the longer ending is asked first."""
_BUDGET: Mapping[str, Mapping[str, Any]] = {
    "optimization": {"max_update": UPDATES, "max_epoch": 0, "update_freq": "[1]"},
    "dataset": {"max_tokens": 600, "batch_size": None, "num_workers": 0},
    "lr_scheduler": {"warmup_updates": 4, "total_num_update": UPDATES},
    "checkpoint": {"save_interval_updates": 4, "keep_interval_updates": 2},
}


def smaller(config: Path) -> tuple[str, ...]:
    """Hydra overrides that shrink the recipe in ``config``.

    Raises:
        OSError: it cannot be read.
    """
    recipe = yaml.safe_load(config.read_text(encoding="utf-8"))
    return tuple([*_sizes(recipe.get("model") or {}), *_budget(recipe)])


def _sizes(model: Mapping[str, Any]) -> Iterator[str]:
    for name in model:
        for ending, value in _SIZES.items():
            if name.endswith(ending):
                yield f"model.{name}={value}"
                break
        if name.endswith("_cutoff"):
            yield f"model.{name}='20,40'"


def _budget(recipe: Mapping[str, Any]) -> Iterator[str]:
    for group, values in _BUDGET.items():
        for name, value in values.items():
            # A schedule without warm-up has no such setting, and what a recipe leaves alone stays alone.
            if name in (recipe.get(group) or {}) or name == "max_update":
                yield f"{group}.{name}={'null' if value is None else value}"
