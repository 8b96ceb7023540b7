"""Small models for a CPU and the examples of the pages: no paper's recipe, but one for all methods, on Multi30k."""

from __future__ import annotations

from collections.abc import Iterator

from recipes.common import Config, Noted, Recipe, Settings, inverse_sqrt, merged, size, small

RATE = 2e-3

DEPTH = Recipe(
    corpus="Multi30k, German to English: 29,000 captions",
    data="scripts/prepare_multi30k.sh",
    source="of this project, chosen on Pre-LN and Post-LN at 6-6 layers",
    settings=merged(
        small("de", "en", interval=20, batch=2000, between=100, kept=4),
        {
            "criterion": {"divergence_plateau": Noted(300, "updates after warm-up")},
            "lr_scheduler": inverse_sqrt(200),
            "optimization": {"max_update": 800, "lr": [RATE], "clip_norm": 1.0},
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
