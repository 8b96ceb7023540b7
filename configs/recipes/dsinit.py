"""Recipes of DS-Init and merged attention (Zhang et al., EMNLP 2019)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterator, Tuple

from recipes.common import (
    AS_DE,
    BASE,
    BIG,
    LABEL_SMOOTHING,
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
DS_REMARKS = (
    "The authors' loss is the mean over sentences of the mean over their words; fairseq's, the mean over all words.",
    "max_tokens counts the longer side with its pads, the paper's tokens are target tokens.",
)


def noam(width: int, warmup: int) -> Settings:
    """The schedule of the original Transformer: fairseq's, with the rate width^-0.5 * warmup^-0.5 at its top."""
    peak = float(f"{(width * warmup) ** -0.5:.6g}")
    return {
        "lr_scheduler": inverse_sqrt(warmup, start=0.0),
        "optimization": {"lr": Noted([peak], f"{width}^-0.5 * {warmup}^-0.5")},
    }


def ds_settings(source: str, target: str, updates: int = 300000) -> Settings:
    """All but the batch."""
    return merged(
        LABEL_SMOOTHING,
        translation(source, target),
        noam(512, 4000),
        {
            "common": {"seed": not_stated(1234, "the toolkit's default"), **LOG},
            "optimizer": adam("(0.9, 0.98)"),
            "optimization": {"max_update": updates, "clip_norm": not_stated(0.0, "no clipping is mentioned")},
            "checkpoint": {
                "save_interval_updates": not_stated(5000, "the last five checkpoints are averaged"),
                "keep_interval_updates": 5,
                "no_epoch_checkpoints": True,
            },
            "generation": {
                "beam": 4, "lenpen": 0.6, "lenpen_form": Noted("gnmt", "what the toolkit's 0.6 means"),
                "max_len_a": 1.0, "max_len_b": 50,
            },
        },
    )  # fmt: skip


def ds_init(recipe: Recipe, tokens: int, dropout: Any, attention: Any, note: str = "") -> Recipe:
    """``recipe`` with batches of ``tokens`` (an eighth each time) and these rates."""
    settings = merged(recipe.settings, {"dataset": {"max_tokens": Noted(tokens // 8, note) if note else tokens // 8}})
    activation = Noted(0.1, "on, or Table 1 would not come out") if not note else not_stated(0.1, "as for En-De")
    return replace(recipe, settings=settings, model={**recipe.model, **rates(dropout, attention, activation)})


DS_DE = Recipe(
    corpus="WMT'14 English to German, joint BPE of 32,000, a dictionary for each language",
    data="JOINED=0 scripts/prepare_wmt14_en_de.sh",
    source=ZERO,
    settings=ds_settings("en", "de"),
    model={**BASE, "share_decoder_input_output_embed": True},
    gpus=0,
    update_freq=8,
    end="_dsinit",
    base_init="xavier",
    remarks=DS_REMARKS,
)
DS_DE_BIG = replace(
    DS_DE,
    settings=merged(DS_DE.settings, noam(1024, 16000), {"optimizer": adam("(0.9, 0.998)")}),
    model={**BIG, "share_decoder_input_output_embed": True},
    end="_big",
)
DS_FR = replace(
    DS_DE, corpus="WMT'14 English to French, joint BPE of 32,000, a dictionary for each language",
    data='JOINED=0 SIZE=32000 scripts/prepare_wmt14_en_fr.sh',
    settings=ds_settings("en", "fr", updates=500000),
)  # fmt: skip
DS_IWSLT = replace(
    DS_DE, corpus="IWSLT'14 German to English, joint BPE of 30,000, a dictionary for each language",
    data='JOINED=0 SIZE=30000 scripts/prepare_iwslt14_de_en.sh',
    settings=ds_settings("de", "en"), end="_base",
)  # fmt: skip
DS_FI = replace(
    DS_DE, corpus="WMT'18 English to Finnish, BPE of 32,000, a dictionary for each language",
    data='text of your own, by JOINED=0 scripts/prepare.sh',
    settings=ds_settings("en", "fi"), end="",
)  # fmt: skip
DS_ZH = replace(
    DS_DE, corpus="WMT'18 Chinese to English, BPE of 32,000, a dictionary for each language",
    data='text of your own, by JOINED=0 scripts/prepare.sh',
    settings=ds_settings("zh", "en", updates=500000), end="",
)  # fmt: skip
RELEASED = {"ds_init_rule": Noted("released", "with which the paper's Table 1 comes out; 'paper' is equation 15")}


def configs() -> Iterator[Tuple[str, Config]]:
    """Those of the DS-Init paper."""
    base = {6: ds_init(DS_DE, 25000, 0.1, 0.1), 12: ds_init(DS_DE, 40000, 0.3, 0.2)}
    deeper = "as for 12 layers"
    base[20] = ds_init(DS_DE, 44000, not_stated(0.3, deeper), not_stated(0.2, deeper))
    base[30] = ds_init(DS_DE, 48000, not_stated(0.3, deeper), not_stated(0.2, deeper))
    big = {6: ds_init(DS_DE_BIG, 48000, 0.3, 0.1), 12: ds_init(DS_DE_BIG, 54000, 0.3, 0.1)}
    big[20] = big[12]
    methods = {6: ("post_ln", "pre_ln", "ds_init", "matt", "dsinit_matt", "dsinit_matt_self", "dsinit_matt_aan")}
    methods[12] = ("post_ln", "pre_ln", "matt", "ds_init", "dsinit_matt")
    methods[20] = ("pre_ln", "ds_init", "dsinit_matt")
    methods[30] = ("dsinit_matt",)
    for depth, names in methods.items():
        for method in names:
            yield _ds_config("wmt14_en_de", base[depth], method, depth)
    for depth, method in ((6, "post_ln"), (12, "dsinit_matt"), (20, "dsinit_matt")):
        yield _ds_config("wmt14_en_de", big[depth], method, depth)
    for corpus, recipe in (("wmt14_en_fr", DS_FR), ("wmt18_en_fi", DS_FI), ("wmt18_zh_en", DS_ZH)):
        six = ds_init(recipe, 25000, not_stated(0.1, AS_DE), not_stated(0.1, AS_DE), f"not stated; {AS_DE}")
        twelve = ds_init(recipe, 40000, not_stated(0.3, AS_DE), not_stated(0.2, AS_DE), f"not stated; {AS_DE}")
        yield _ds_config(corpus, six, "post_ln", 6)
        yield _ds_config(corpus, twelve, "dsinit_matt", 12)
    iwslt = ds_init(DS_IWSLT, 25000, 0.5, 0.3, "not stated; as for En-De with 6 layers")
    yield _ds_config("iwslt14_de_en", iwslt, "post_ln", 6)
    yield _ds_config("iwslt14_de_en", iwslt, "dsinit_matt", 12)


def _ds_config(corpus: str, recipe: Recipe, method: str, depth: int) -> Tuple[str, Config]:
    """The recipe is only named where the Admin paper, too, trains a model of that name."""
    plain = method in ("post_ln", "pre_ln")
    end = recipe.end if plain or recipe.end != "_dsinit" else ""
    options = RELEASED if "ds" in method.split("_")[0] else {}
    return f"{corpus}/{method}_{depth}e{depth}d{end}", Config(recipe, method, depth, depth, options)
