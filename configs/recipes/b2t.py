"""Recipes of the B2T connection (Takase et al., Findings of ACL 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Tuple

from recipes.common import (
    AS_DE,
    BASE,
    LABEL_SMOOTHING,
    LOG,
    Config,
    Noted,
    Recipe,
    adam,
    inverse_sqrt,
    merged,
    not_stated,
    rates,
    size,
    translation,
)

B2T_README = "the paper, and the authors' command, github.com/takase/b2t_connection, README.md"
B2T_DE = Recipe(
    corpus="WMT'16 English to German as in fairseq's scaling_nmt, joint BPE of 32,000, one dictionary",
    data="VARIANT=wmt16-google scripts/prepare_wmt14_en_de.sh",
    source=B2T_README,
    settings=merged(
        LABEL_SMOOTHING,
        translation("en", "de"),
        {
            "common": {"seed": 1, **LOG},
            "optimizer": adam("(0.9, 0.98)"),
            "lr_scheduler": inverse_sqrt(4000),
            "dataset": {"max_tokens": 3584},
            "optimization": {"lr": [0.001], "max_update": 50000, "clip_norm": 0.0, "stop_min_lr": 1e-9},
            "checkpoint": {"keep_last_epochs": 10},
            "generation": {
                "beam": 4,
                "lenpen": Noted(1.0, "0.6 for newstest2014: LENGTH_PENALTY=0.6 scripts/evaluate.sh"),
            },
        },
    ),
    model={**BASE, **rates(0.3, 0.0, 0.0), "share_all_embeddings": True},
    gpus=4,
    update_freq=32,
    remarks=("128 GPUs in the terms of the paper.",),
)
B2T_DE_WORDS = replace(
    B2T_DE,
    settings=merged(B2T_DE.settings, {"optimization": {"clip_norm": 0.1}}),
    model={**B2T_DE.model, "dropout": 0.5, "word_dropout": "0.1,0.1"},
)
B2T_DE_100 = replace(B2T_DE_WORDS, settings=merged(B2T_DE_WORDS.settings, {"optimization": {"max_update": 25000}}))
HEADLINE = replace(
    B2T_DE,
    corpus="Headlines of news articles; the text is not public",
    data="text of your own, by scripts/prepare.sh",
    source="the same paper's for En-De",
    settings=merged(
        B2T_DE.settings,
        translation("source", "target"),
        {"generation": {"beam": not_stated(4, AS_DE), "lenpen": not_stated(1.0, AS_DE)}},
    ),
    model={**BASE, **rates(not_stated(0.3, AS_DE), 0.0, 0.0), "share_all_embeddings": not_stated(True, AS_DE)},
    remarks=("All settings but the depth are those for En-De: the recipe of this task is not at hand.",),
)
BAEVSKI = "that of Baevski and Auli, ICLR 2019, in fairseq's examples/language_model/README.adaptive_inputs.md"
WIKITEXT = Recipe(
    corpus="WikiText-103 in words",
    data='scripts/prepare_wikitext103.sh',
    source=f"not stated in full; {BAEVSKI}",
    settings={
        "common": {"seed": 1, **LOG},
        "distributed_training": {"ddp_backend": Noted("legacy_ddp", "adaptive_loss asks for it")},
        "task": {"_name": "language_modeling", "data": "???", "tokens_per_sample": 3072, "sample_break_mode": "none"},
        "criterion": {"_name": "adaptive_loss"},
        "optimizer": {"_name": "nag", "momentum": 0.99},
        "lr_scheduler": {
            "_name": "cosine", "warmup_updates": 16000, "warmup_init_lr": 1e-7, "min_lr": 0.0001, "t_mult": 2.0,
            "lr_period_updates": 270000.0, "lr_shrink": 0.75,
        },
        "dataset": {"max_tokens": 3072, "skip_invalid_size_inputs_valid_test": True},
        "optimization": {"lr": [1.0], "max_update": 286000, "clip_norm": 0.1, "stop_min_lr": 1e-9},
        "checkpoint": {"no_epoch_checkpoints": True},
        "eval_lm": {"context_window": 2560},
    },
    model={
        **rates(0.3, 0.1, 0.1), "activation_fn": "relu",
        "adaptive_input": True, "adaptive_input_cutoff": "20000,60000", "adaptive_softmax_cutoff": "20000,60000",
        "adaptive_softmax_dropout": 0.2, "tie_adaptive_weights": True, "tie_adaptive_proj": True,
    },
    gpus=8,
    update_freq=3,
)  # fmt: skip
LIBRISPEECH = Recipe(
    corpus="LibriSpeech, 960 hours, SentencePiece unigram of 10,000",
    data='scripts/prepare_librispeech.sh',
    source="not stated in full; fairseq's examples/speech_to_text/docs/librispeech_example.md, whose medium model with "
    "12 and 6 layers has about the word error rates that the paper prints for Pre-LN",
    settings={
        "common": {"seed": 1, **LOG},
        "task": {
            "_name": "speech_to_text", "task": "speech_to_text", "data": "???", "config_yaml": "config.yaml",
            "max_source_positions": 6000, "max_target_positions": 1024, "seed": 1,
        },
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1, "report_accuracy": True},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "inverse_sqrt", "warmup_updates": 10000},
        "dataset": {"max_tokens": Noted(40000, "frames of audio"), "train_subset": "train", "valid_subset": "dev"},
        "optimization": {"lr": [0.001], "max_update": 300000, "clip_norm": 10.0},
        "checkpoint": {"keep_last_epochs": 10},
        "generation": {"beam": 5, "lenpen": 1.0},
        "scoring": {"_name": "wer"},
    },
    model={**size(512, 2048, 8), **rates(0.15, 0.15, 0.15), "share_decoder_input_output_embed": True},
    gpus=8,
    update_freq=1,
    remarks=("'tokens' are frames of audio here.",),
)  # fmt: skip

COMPARED = (
    "post_ln", "pre_ln", "dlcl_post_ln", "admin", "t_fixup", "realformer", "deepnet", "b2t", "b2t_without_ln",
)  # fmt: skip
"""The methods of the B2T paper's Table 1."""


def configs() -> Iterator[Tuple[str, Config]]:
    """Those of the B2T paper."""
    for method in COMPARED:
        for depth in (6, 18):
            yield (
                f"wmt16_en_de/{method}_{depth}e{depth}d",
                Config(B2T_DE, method, depth, depth, remarks=_carried_over(method)),
            )
    as_released = {"b2t_init_scale": Noted("layers", "as in the released code of 2023-05")}
    yield "wmt16_en_de/b2t_18e18d_word_dropout", Config(B2T_DE_WORDS, "b2t", 18, 18, as_released)
    yield "wmt16_en_de/b2t_deep_100e100d", Config(B2T_DE_100, "b2t_deep", 100, 100, {"b2t_init_scale": "0.1"})
    yield (
        "wmt16_en_de/pre_ln_100e100d",
        Config(B2T_DE_100, "pre_ln", 100, 100, remarks=("Not stated whether Pre-LN has these dropouts, too.",)),
    )
    for method in ("b2t", "b2t_without_ln"):
        yield f"headline/{method}_18e18d", Config(HEADLINE, method, 18, 18)
    words = {name: value for name, value in size(1024, 4096, 8).items() if name.startswith("decoder")}
    for method in ("post_ln", "pre_ln", "b2t"):
        for depth in (6, 16):
            yield f"wikitext103/{method}_{depth}d", Config(WIKITEXT, method, 0, depth, words, family="_transformer_lm")
    for method in ("pre_ln", "b2t"):
        yield f"librispeech/{method}_12e6d", Config(LIBRISPEECH, method, 12, 6, family="_s2t_transformer")


def _carried_over(method: str) -> Tuple[str, ...]:
    """What is to be said of the methods that the B2T paper compares with."""
    if method in ("post_ln", "pre_ln", "b2t", "b2t_without_ln"):
        return ()
    return ("How the paper carried the method over is not stated; here it is this package's, in the same recipe.",)
