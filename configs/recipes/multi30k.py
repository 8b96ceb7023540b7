"""Small models for a CPU and the examples of the pages: no paper's recipe, but one for all methods, on Multi30k."""

from __future__ import annotations

from collections.abc import Iterator

from recipes.common import (
    LABEL_SMOOTHING,
    Config,
    Noted,
    Recipe,
    Settings,
    adam,
    inverse_sqrt,
    merged,
    size,
    translation,
)

RATE = 2e-3
UPDATES, BETWEEN_CHECKPOINTS = 800, 100
NEVER = 10**6

DEPTH = Recipe(
    corpus="Multi30k, German to English: 29,000 captions",
    data="scripts/prepare_multi30k.sh",
    source="of this project, chosen on Pre-LN and Post-LN at 6-6 layers",
    settings=merged(
        translation("de", "en"),
        LABEL_SMOOTHING,
        {
            "common": {"seed": 1, "cpu": True, "log_format": "json", "log_interval": 20},
            "criterion": {
                "_name": "label_smoothed_cross_entropy_with_diagnostics",
                "divergence_action": "stop",
                "divergence_plateau": Noted(300, "updates after warm-up"),
            },
            "optimizer": {**adam("(0.9, 0.98)"), "_name": "fused_adam"},
            "lr_scheduler": inverse_sqrt(200),
            "dataset": {
                "max_tokens": 2000,
                "num_workers": 0,
                "validate_interval_updates": BETWEEN_CHECKPOINTS,
                "validate_interval": NEVER,
            },
            "optimization": {"max_update": UPDATES, "lr": [RATE], "clip_norm": 1.0},
            "checkpoint": {
                "save_interval_updates": BETWEEN_CHECKPOINTS,
                "keep_interval_updates": 4,
                "save_interval": NEVER,
                "no_epoch_checkpoints": True,
            },
            "generation": {"beam": 5, "lenpen": 1.0, "max_len_a": 1.5, "max_len_b": 10},
        },
    ),
    model={**size(128, 256, 4), "dropout": 0.1, "share_all_embeddings": True},
    gpus=1,
    update_freq=1,
)
NO_WARM_UP: Settings = {"lr_scheduler": {"warmup_init_lr": Noted(RATE, "no warm-up, as published")}}
METHODS: dict[str, Settings] = {"post_ln": {}, "pre_ln": {}, "admin": {}, "rezero": NO_WARM_UP}


def configs() -> Iterator[tuple[str, Config]]:
    """Every method at every depth."""
    for depth in (6, 18):
        for name, own in METHODS.items():
            yield f"multi30k_de_en/{name}_{depth}e{depth}d", Config(DEPTH, name, depth, depth, settings=own)
