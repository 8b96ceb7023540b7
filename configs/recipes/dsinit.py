"""Recipes of DS-Init and merged attention (Zhang et al., EMNLP 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recipes.common import (
    BASE,
    BIG,
    LOG,
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

ZERO = "the paper, and the authors' toolkit, github.com/bzhangGo/zero"
TOOLKIT = "the toolkit's default"
DS_REMARKS = (
    "The loss is the toolkit's, a mean over sentences: there of each batch's mean, here of all sentences of an update.",
    "max_tokens counts the longer side with its pads, as the toolkit does; the paper speaks of target tokens.",
    "The toolkit draws q, k and v of the cross-attention as three matrices; where a method does not do so itself, "
    "base_init xavier_apart does.",
)


def noam(width: int, warmup: int) -> Settings:
    """The schedule of the original Transformer: fairseq's, with the rate width^-0.5 * warmup^-0.5 at its top."""
    peak = float(f"{(width * warmup) ** -0.5:.6g}")
    return {
        "lr_scheduler": inverse_sqrt(warmup, start=0.0),
        "optimization": {"lr": Noted([peak], f"{width}^-0.5 * {warmup}^-0.5")},
    }


def adam_of_the_toolkit(betas: str) -> Settings:
    """The group ``optimizer``."""
    return {"optimizer": {**adam(betas), "adam_eps": not_stated(1e-9, TOOLKIT)}}


def ds_settings(source: str, target: str, updates: int = 300000) -> Settings:
    """All but the batch."""
    return merged(
        {"criterion": {"_name": "label_smoothed_cross_entropy_by_sentence", "label_smoothing": 0.1}},
        translation(source, target),
        noam(512, 4000),
        adam_of_the_toolkit("(0.9, 0.98)"),
        {
            "common": {"seed": not_stated(1234, TOOLKIT), **LOG},
            "optimization": {"max_update": updates, "clip_norm": not_stated(5.0, TOOLKIT)},
            "checkpoint": {
                "save_interval_updates": not_stated(5000, f"{TOOLKIT}; the last five checkpoints are averaged"),
                "keep_interval_updates": 5,
                "no_epoch_checkpoints": True,
            },
            "generation": {
                "beam": 4,
                "lenpen": 0.6,
                "lenpen_form": Noted("gnmt", "what the toolkit's 0.6 means"),
                "max_len_a": 1.0,
                "max_len_b": Noted(50, TOOLKIT),
            },
        },
    )


def sized(recipe: Recipe, tokens: int, dropout: float, attention: float) -> Recipe:
    """``recipe`` with batches of ``tokens`` (an eighth each time) and these rates; the paper's is that of branches."""
    settings = merged(recipe.settings, {"dataset": {"max_tokens": tokens // 8}})
    activation = not_stated(0.1, f"{TOOLKIT}, without which Table 1 does not come out")
    dropouts = {**rates(dropout, attention, activation), "embedding_dropout": not_stated(0.1, TOOLKIT)}
    return replace(recipe, settings=settings, model={**recipe.model, **dropouts})


DS_DE = Recipe(
    corpus="WMT'14 English to German, 4.5 million pairs, BPE of 32,000, a dictionary for each language",
    data="VARIANT=dsinit scripts/prepare_wmt14_en_de.sh",
    source=ZERO,
    settings=ds_settings("en", "de"),
    model={**BASE, "share_decoder_input_output_embed": True},
    gpus=0,
    update_freq=8,
    end="_dsinit",
    base_init="xavier_apart",
    remarks=DS_REMARKS,
)
DS_DE_BIG = replace(
    DS_DE,
    settings=merged(
        DS_DE.settings,
        noam(1024, 16000),
        adam_of_the_toolkit("(0.9, 0.998)"),
        {"common": {"fp16": Noted(True, "mixed precision for all big models, section 7.2")}},
    ),
    model={**BIG, "share_decoder_input_output_embed": True},
    end="_big",
)
DS_FR = replace(
    DS_DE,
    corpus="WMT'14 English to French, BPE of 32,000, a dictionary for each language",
    data="VARIANT=dsinit scripts/prepare_wmt14_en_fr.sh",
    settings=ds_settings("en", "fr", updates=500000),
)
DS_IWSLT = replace(
    DS_DE,
    corpus="IWSLT'14 German to English, joint BPE of 30,000, a dictionary for each language",
    data="VARIANT=dsinit scripts/prepare_iwslt14_de_en.sh",
    settings=ds_settings("de", "en"),
    end="_base",
)
DS_FI = replace(
    DS_DE,
    corpus="WMT'18 English to Finnish, BPE of 32,000, a dictionary for each language",
    data="scripts/prepare_wmt18_en_fi.sh",
    settings=ds_settings("en", "fi"),
    end="",
)
DS_ZH = replace(
    DS_DE,
    corpus="WMT'18 Chinese to English, BPE of 32,000, a dictionary for each language",
    data="scripts/prepare_wmt18_zh_en.sh",
    settings=ds_settings("zh", "en", updates=500000),
    end="",
)
RELEASED = {"ds_init_rule": Noted("released", "with which the paper's Table 1 comes out; 'paper' is equation 15")}
BATCHES = {6: 25000, 12: 40000, 18: 42000, 20: 44000, 30: 48000}
"""Tokens of an update by the number of layers: Table 3, and 7.3 on the depths of Figure 3."""


def configs() -> Iterator[tuple[str, Config]]:
    """Those of the DS-Init paper."""
    base = {
        depth: sized(DS_DE, tokens, *((0.1, 0.1) if depth == 6 else (0.3, 0.2))) for depth, tokens in BATCHES.items()
    }
    methods = {6: ("post_ln", "pre_ln", "ds_init", "matt", "dsinit_matt", "matt_self", "matt_aan")}
    methods[12] = ("pre_ln", "ds_init", "dsinit_matt")
    methods[18] = ("dsinit_matt",)
    methods[20] = ("pre_ln", "ds_init", "dsinit_matt")
    methods[30] = ("dsinit_matt",)
    for depth, names in methods.items():
        for method in names:
            yield _ds_config("wmt14_en_de", base[depth], method, depth)
    for method in ("post_ln", "matt"):  # The two that fail have the rates of model 1.
        yield _ds_config("wmt14_en_de", base[6], method, 12)
    for depth, method, tokens in ((6, "post_ln", 48000), (12, "dsinit_matt", 54000), (20, "dsinit_matt", 54000)):
        yield _ds_config("wmt14_en_de", sized(DS_DE_BIG, tokens, 0.3, 0.1), method, depth)
    # 7.4: the settings of English to German.
    for corpus, recipe in (("wmt14_en_fr", DS_FR), ("wmt18_en_fi", DS_FI), ("wmt18_zh_en", DS_ZH)):
        yield _ds_config(corpus, sized(recipe, BATCHES[6], 0.1, 0.1), "post_ln", 6)
        yield _ds_config(corpus, sized(recipe, BATCHES[12], 0.3, 0.2), "dsinit_matt", 12)
    for method, depth in (("post_ln", 6), ("dsinit_matt", 12)):
        yield _ds_config("iwslt14_de_en", sized(DS_IWSLT, BATCHES[depth], 0.5, 0.3), method, depth)


def _ds_config(corpus: str, recipe: Recipe, method: str, depth: int) -> tuple[str, Config]:
    """The recipe is only named where the Admin paper, too, trains a model of that name."""
    plain = method in ("post_ln", "pre_ln")
    end = recipe.end if plain or recipe.end != "_dsinit" else ""
    options = RELEASED if "ds" in method.split("_")[0] else {}
    return f"{corpus}/{method}_{depth}e{depth}d{end}", Config(recipe, method, depth, depth, options)
