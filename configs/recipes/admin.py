"""Recipes of the Admin paper (Liu et al., EMNLP 2020), its first arXiv version, and admin-torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recipes.common import (
    BASE,
    LABEL_SMOOTHING,
    LOG,
    SMALL,
    Config,
    Noted,
    Recipe,
    Settings,
    adam,
    inverse_sqrt,
    merged,
    not_stated,
    rates,
    translation,
)

CLINIC = "the authors' commands, github.com/LiyuanLucasLiu/Transformer-Clinic, nmt-experiments/"
ADMIN_COMMON: Settings = merged(
    LABEL_SMOOTHING,
    {
        "common": {"seed": 1111, **LOG, "fp16": True, "fp16_scale_window": 256, "threshold_loss_scale": 0.03125},
        "optimizer": {"_name": "radam", "adam_betas": "(0.9, 0.98)"},
        "optimization": {"clip_norm": 0.0},
        "checkpoint": {"keep_last_epochs": 10},
    },
)
ADMIN_IWSLT = Recipe(
    corpus="IWSLT'14 German to English, lower case, joint BPE of 10,000, one dictionary",
    data="scripts/prepare_iwslt14_de_en.sh",
    source=CLINIC + "iwslt14_de-en.md",
    settings=merged(
        ADMIN_COMMON,
        translation("de", "en"),
        {
            "optimizer": {"weight_decay": 0.0001},
            "lr_scheduler": inverse_sqrt(6000),
            "dataset": {"max_tokens": 4096},
            "optimization": {"lr": [0.0007], "max_update": 100000, "max_epoch": 90},
            "generation": {"beam": 5, "lenpen": 1.0},
        },
    ),
    model={**SMALL, **rates(0.3, 0.1, 0.1), "share_all_embeddings": True},
    gpus=1,
    update_freq=1,
    base_init="xavier",
    remarks=("Five seeds in the paper: common.seed=1111, 2222, 3333, 4444, 5555.",),
)
ADMIN_NO_WARMUP = replace(
    ADMIN_IWSLT,
    settings=merged(
        {group: values for group, values in ADMIN_IWSLT.settings.items() if group != "lr_scheduler"},
        {
            "lr_scheduler": {
                "_name": "polynomial_decay",
                "warmup_updates": 1,
                "power": 1.0,
                "end_learning_rate": not_stated(1e-9, "the released schedule ends at its least rate"),
                "total_num_update": 100000,
            },
            "optimization": {"lr": Noted([0.0003], "one of the grid")},
            "optimizer": {"adam_betas": Noted("(0.9, 0.995)", "one of the grid")},
        },
    ),
    remarks=("One update of warm-up, then a straight line down: stock's polynomial_decay is the released 'linear'.",),
)
GRID = {
    "optimization.lr": ",".join(f"[{rate}]" for rate in ("0.0001", "0.0002", "0.0003", "0.0004", "0.0005")),
    "optimizer.adam_betas": ",".join(f"'(0.9, {beta})'" for beta in ("0.999", "0.995", "0.99")),
}
ADMIN_DE = Recipe(
    corpus="WMT'14 English to German, joint BPE (32,764 in the paper), one dictionary",
    data="VARIANT=admin scripts/prepare_wmt14_en_de.sh",
    source=CLINIC + "wmt14_en-de.md",
    settings=merged(
        ADMIN_COMMON,
        translation("en", "de"),
        {
            "lr_scheduler": inverse_sqrt(8000),
            "dataset": {"max_tokens": 8192},
            "optimization": {"lr": [0.001], "max_update": 500000, "max_epoch": 100, "stop_min_lr": 1e-9},
            "generation": {"beam": 4, "lenpen": 0.6},
        },
    ),
    model={**BASE, **rates(0.1, 0.1, 0.1), "share_all_embeddings": True},
    gpus=4,
    update_freq=1,
    base_init="xavier",
    remarks=("The text says 8196 tokens, the command 8192.",),
)
ADMIN_DE_DEEP = replace(
    ADMIN_DE,
    settings=merged(
        ADMIN_DE.settings,
        {"dataset": {"max_tokens": not_stated(4096, "the authors' command for 100 layers, on 8 GPUs")}},
    ),
    gpus=8,
    remarks=("The paper quotes the result from arXiv 2008.07772, and not its settings: these are those of En-De.",),
)
ADMIN_FR = Recipe(
    corpus="WMT'14 English to French, joint BPE of 40,000, one dictionary",
    data="scripts/prepare_wmt14_en_fr.sh",
    source=CLINIC + "wmt14_en-fr.md",
    settings=merged(
        ADMIN_COMMON,
        translation("en", "fr"),
        {
            "lr_scheduler": inverse_sqrt(8000),
            "dataset": {"max_tokens": 8000},
            "optimization": {"lr": [0.0007], "max_epoch": 50, "stop_min_lr": 1e-9},
            "generation": {"beam": 5, "lenpen": 0.8},
        },
    ),
    model={**BASE, **rates(0.1, 0.1, 0.1), "share_all_embeddings": True},
    gpus=8,
    update_freq=10,
    base_init="xavier",
    remarks=("8 GPUs in the command, 4 in the text.",),
)
ADMIN_FR_DEEP = replace(
    ADMIN_FR,
    settings=merged(ADMIN_FR.settings, {"dataset": {"max_tokens": 5000}}),
    gpus=16,
    update_freq=16,
    remarks=("Appendix D calls it 60L-16L, which is a misprint of 60L-12L.",),
)
ADMIN_TORCH = replace(
    ADMIN_DE,
    source="the authors' script, github.com/microsoft/admin-torch, example/train_wmt_en-de.sh",
    settings=merged(
        ADMIN_DE.settings,
        {
            "common": {"memory_efficient_fp16": True, "threshold_loss_scale": 0.0625},
            "optimizer": adam("(0.9, 0.98)"),
            "dataset": {"max_tokens": 4096},
            "optimization": {"max_update": 1000000},
        },
    ),
    model={**ADMIN_DE.model, "admin_torch_omega": Noted("trained", "as in the script")},
    gpus=8,
    remarks=(),
)
ADMIN_TORCH_HUGE = replace(
    ADMIN_TORCH,
    source="the authors' script, github.com/microsoft/admin-torch, example/train_wmt_en-de_huge_batch.sh",
    settings=merged(
        ADMIN_TORCH.settings,
        {
            "optimizer": {"weight_decay": 0.0001},
            "lr_scheduler": inverse_sqrt(4000),
            "dataset": {"max_tokens": 2048},
            "optimization": {"lr": [0.0015], "max_update": 100000, "max_epoch": 40},
            "checkpoint": {"keep_last_epochs": 15},
        },
    ),
    model={**ADMIN_TORCH.model, **rates(0.4, 0.0, 0.0)},
    update_freq=32,
)

FIXUP_DROPOUT = (
    "Two experiments with FixUp had dropouts of their own, says appendix D of the first arXiv version, and not which: "
    "here they are those of all others."
)
THREE = ("post_ln", "pre_ln", "admin")


def configs() -> Iterator[tuple[str, Config]]:
    """Those of the Admin paper and of admin-torch."""
    for method in (*THREE, "rezero", "rezero_post_ln"):
        yield f"iwslt14_de_en/{method}_6e6d", Config(ADMIN_IWSLT, method, 6, 6)
    for method in THREE:
        yield f"iwslt14_de_en/{method}_6e6d_no_warmup", Config(ADMIN_NO_WARMUP, method, 6, 6, sweep=GRID)
        for depth in (6, 12, 18):
            yield f"wmt14_en_de/{method}_{depth}e{depth}d", Config(ADMIN_DE, method, depth, depth)
        yield f"wmt14_en_fr/{method}_6e6d", Config(ADMIN_FR, method, 6, 6)
        yield f"wmt14_en_fr/{method}_60e12d", Config(ADMIN_FR_DEEP, method, 60, 12)
    yield "wmt14_en_de/admin_60e12d", Config(ADMIN_DE_DEEP, "admin", 60, 12)
    for method in ("hybrid_ln", "rezero", "looklinear"):
        yield f"wmt14_en_de/{method}_18e18d", Config(ADMIN_DE, method, 18, 18)
    yield "wmt14_en_de/fixup_18e18d", Config(ADMIN_DE, "fixup", 18, 18, remarks=(FIXUP_DROPOUT,))
    for depth in (6, 18):
        yield f"wmt14_en_de/admin_torch_{depth}e{depth}d", Config(ADMIN_TORCH, "admin_torch", depth, depth)
    yield "wmt14_en_de/admin_torch_100e100d", Config(ADMIN_TORCH_HUGE, "admin_torch", 100, 100)
