"""Recipes of the B2T connection (Takase et al., Findings of ACL 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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

B2T_README = (
    "the paper, sections 6.1 and A; what it leaves open from the authors' first command, of 2022, "
    "github.com/takase/b2t_connection, README.md"
)
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
                "lenpen": Noted(1.0, "0.6 for newstest2014: fairseq-deep evaluate --length-penalty 0.6"),
            },
        },
    ),
    model={**BASE, **rates(0.3, 0.0, 0.0), "share_all_embeddings": True},
    gpus=128,
    update_freq=1,
    remarks=("Google's archive is no longer at its address: VARIANT=wmt16-raw builds the text from its raw parts.",),
)
B2T_DE_WORDS = replace(
    B2T_DE,
    source="the authors' command of 2023-05, github.com/takase/b2t_connection, README.md",
    settings=merged(
        B2T_DE.settings,
        {"common": {"fp16": Noted(True, "as in the released command")}, "optimization": {"clip_norm": 0.1}},
    ),
    model={**B2T_DE.model, "dropout": 0.5, "word_dropout": "0.1,0.1"},
    gpus=8,
    update_freq=16,
)
B2T_DE_100 = replace(
    B2T_DE_WORDS,
    source="the paper, appendix C.1; batch and precision of the authors' command of 2023-05, "
    "github.com/takase/b2t_connection, README.md",
    settings=merged(B2T_DE_WORDS.settings, {"optimization": {"max_update": 25000}}),
    remarks=("The paper trained on 24 V100 for about 120 hours (A.2) and does not say how many tokens an update had.",),
)
SCALED = {
    "b2t_init_scale": "0.1",
    "b2t_init_scope": Noted("parameters", "C.1: all parameter values but the embeddings'; the released code: matrices"),
}
"""The initial values of 100 layers. The text makes no exception for Post-LN and Pre-LN."""
AS_OFFICIAL = "as in the official implementation, which the paper took (6.1.2)"
T_FIXUP = {"base_init": Noted("xavier_biased", AS_OFFICIAL), "t_fixup_rule": Noted("released", AS_OFFICIAL)}
SMALL_BATCH = ("The batch of Figure 10 is not stated: its rows take that of the command without update_freq.",)
HEADLINES = replace(
    B2T_DE,
    corpus="Headlines: 3.8 million pairs of Rush et al. (2015) from Annotated English Gigaword, joint BPE of 32,000",
    data="text of your own, by fairseq-deep prepare",
    source="the paper, sections 6.2 and A; what it leaves open as for En-De",
    settings=merged(
        B2T_DE.settings,
        translation("source", "target"),
        {
            "optimization": {"clip_norm": not_stated(0.0, AS_DE)},
            "generation": {"beam": not_stated(4, AS_DE), "lenpen": not_stated(1.0, AS_DE)},
        },
    ),
    model={**BASE, **rates(not_stated(0.3, AS_DE), 0.0, 0.0), "share_all_embeddings": not_stated(True, AS_DE)},
    gpus=64,
    remarks=(),
)
HEADLINES_EXTENDED = replace(
    HEADLINES,
    corpus="Headlines: 3.8 million pairs of Rush et al. (2015) and 13 million more from RealNews and NewsCrawl, which "
    "are not public; joint BPE of 32,000",
    gpus=144,
)
AS_BAEVSKI = "as Baevski and Auli, ICLR 2019, in fairseq's examples/language_model/README.adaptive_inputs.md"
WIKITEXT = Recipe(
    corpus="WikiText-103 in words",
    data="scripts/prepare_wikitext103.sh",
    source="the paper, sections 6.3 and A; what it leaves open " + AS_BAEVSKI,
    settings={
        "common": {"seed": 1, **LOG},
        "distributed_training": {"ddp_backend": Noted("legacy_ddp", "adaptive_loss asks for it")},
        "task": {
            "_name": "language_modeling",
            "data": "???",
            "tokens_per_sample": not_stated(1024, "one block for each GPU, as Baevski and Auli have it"),
            "sample_break_mode": "none",
        },
        "criterion": {"_name": "adaptive_loss"},
        "optimizer": adam("(0.9, 0.98)"),
        "lr_scheduler": inverse_sqrt(2000),
        "dataset": {"max_tokens": 1024, "skip_invalid_size_inputs_valid_test": True},
        "optimization": {
            "lr": [0.001],
            "max_update": 50000,
            "clip_norm": not_stated(0.1, "as Baevski and Auli"),
            "stop_min_lr": 1e-9,
        },
        "checkpoint": {"no_epoch_checkpoints": True},
        "eval_lm": {"context_window": not_stated(512, "as Baevski and Auli, 512 tokens are scored at a time")},
    },
    model={
        **rates(*(not_stated(rate, "as Baevski and Auli") for rate in (0.3, 0.1, 0.1))),
        "activation_fn": "relu",
        "adaptive_input": True,
        "adaptive_input_cutoff": "20000,60000",
        "adaptive_softmax_cutoff": "20000,60000",
        "adaptive_softmax_dropout": 0.2,
        "tie_adaptive_weights": True,
        "tie_adaptive_proj": True,
        "no_decoder_final_norm": Noted(True, "as in fairseq's transformer_lm_wiki103; Pre-LN alone has one"),
    },
    gpus=128,
    update_freq=1,
)
AS_WANG = "as fairseq's s2t_transformer_m and its examples/speech_to_text/docs/librispeech_example.md"
LIBRISPEECH = Recipe(
    corpus="LibriSpeech, 960 hours, SentencePiece unigram of 10,000",
    data="scripts/prepare_librispeech.sh",
    source=f"the paper, sections 6.4 and A; what it leaves open {AS_WANG}",
    settings={
        "common": {"seed": 1, **LOG},
        "task": {
            "_name": "speech_to_text",
            "task": "speech_to_text",
            "data": "???",
            "config_yaml": "config.yaml",
            "max_source_positions": 6000,
            "max_target_positions": 1024,
            "seed": 1,
        },
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1, "report_accuracy": True},
        "optimizer": adam("(0.9, 0.98)"),
        "lr_scheduler": inverse_sqrt(4000),
        "dataset": {"max_tokens": Noted(40000, "frames of audio"), "train_subset": "train", "valid_subset": "dev"},
        "optimization": {"lr": [0.001], "max_update": 150000, "clip_norm": not_stated(10.0, "as in fairseq's example")},
        "checkpoint": {"keep_last_epochs": 10},
        "generation": {"beam": not_stated(5, "as in fairseq's example"), "lenpen": 1.0},
        "scoring": {"_name": "wer"},
    },
    model={
        **size(512, 2048, 8),
        **rates(*[not_stated(0.15, "as in fairseq's s2t_transformer_m")] * 3),
        "share_decoder_input_output_embed": True,
    },
    gpus=32,
    update_freq=1,
    remarks=("'tokens' are frames of audio here.",),
)

BASELINES = ("post_ln", "pre_ln", "b2t")
COMPARED = ("post_ln", "pre_ln", "dlcl_post_ln", "admin", "t_fixup", "realformer", "deepnet", "b2t", "b2t_without_ln")
"""The methods of Tables 1 and 3, and that of Tables 8 and 9."""
CURVES = {12: "Figure 9", 36: "Figures 8 and 9", 50: "Figure 9"}
"""By depth, for which figures Pre-LN and B2T were trained with the settings of 6 and 18 layers."""


def configs() -> Iterator[tuple[str, Config]]:
    """Those of the B2T paper."""
    yield from _compared("wmt16_en_de", B2T_DE, 6)
    yield from _compared("wmt16_en_de", B2T_DE, 18)
    as_released = {"b2t_init_scale": Noted("layers", "as in the released code of 2023-05")}
    yield "wmt16_en_de/b2t_18e18d_word_dropout", Config(B2T_DE_WORDS, "b2t", 18, 18, as_released)
    yield "wmt16_en_de/b2t_deep_100e100d", Config(B2T_DE_100, "b2t_deep", 100, 100, SCALED, remarks=SMALL_BATCH)
    for method in ("post_ln", "pre_ln"):
        yield (
            f"wmt16_en_de/{method}_100e100d",
            Config(B2T_DE_100, method, 100, 100, {"init": Noted("b2t", "for its b2t_init_scale"), **SCALED}),
        )
    yield (
        "wmt16_en_de/deepnet_100e100d",
        Config(B2T_DE_100, "deepnet", 100, 100, remarks=(*SMALL_BATCH, *_carried_over("deepnet"))),
    )
    for depth, figures in CURVES.items():
        for method in ("pre_ln", "b2t"):
            remark = f"For {figures}, with the settings of 6 and 18 layers (C.1); its number of GPUs is not stated."
            yield f"wmt16_en_de/{method}_{depth}e{depth}d", Config(B2T_DE, method, depth, depth, remarks=(remark,))
    yield from _compared("headline", HEADLINES, 6)
    yield from _compared("headline_extended", HEADLINES_EXTENDED, 18)
    words = {name: value for name, value in size(1024, 4096, 8).items() if name.startswith("decoder")}
    for method in BASELINES:
        for depth, gpus in ((6, 128), (16, 192)):
            recipe = replace(WIKITEXT, gpus=gpus)
            yield f"wikitext103/{method}_{depth}d", Config(recipe, method, 0, depth, words, family="_transformer_lm")
        for depth in (6, 12):
            yield f"librispeech/{method}_{depth}e6d", Config(LIBRISPEECH, method, depth, 6, family="_s2t_transformer")


def _compared(corpus: str, recipe: Recipe, depth: int) -> Iterator[tuple[str, Config]]:
    """All methods at one depth; T-Fixup by its own authors' recipe, as the paper has it (6.1.2, A.1)."""
    for method in COMPARED:
        yield (
            f"{corpus}/{method}_{depth}e{depth}d",
            Config(
                _without_warmup(recipe) if method == "t_fixup" else recipe,
                method,
                depth,
                depth,
                T_FIXUP if method == "t_fixup" else {},
                remarks=_carried_over(method),
            ),
        )


def _without_warmup(recipe: Recipe) -> Recipe:
    """With rate and schedule of T-Fixup's released command."""
    settings = {name: values for name, values in recipe.settings.items() if name != "lr_scheduler"}
    schedule = {
        "lr_scheduler": {"_name": "inverse_sqrt_without_warmup", "lr_decay_constant": 4000.0},
        "optimization": {"lr": [0.0005]},
    }
    return replace(
        recipe,
        source="rate and schedule of the command of Huang et al., github.com/layer6ai-labs/T-Fixup; all else from "
        + recipe.source,
        settings=merged(settings, schedule),
        remarks=(
            *recipe.remarks,
            "The paper took the hyper-parameters of Huang et al. (2020) for T-Fixup and names none of them. Their "
            "command is for IWSLT'14: its dropout of 0.5, weight decay of 1e-4 and batch are not taken over.",
        ),
    )


def _carried_over(method: str) -> tuple[str, ...]:
    """What is to be said of the methods that the B2T paper compares with."""
    if method in ("dlcl_post_ln", "admin", "t_fixup"):
        return ("The paper took the official implementation of the method (6.1.2); here it is this package's.",)
    if method in ("realformer", "deepnet"):
        return ("The paper does not say which implementation of the method it took; here it is this package's.",)
    return ()
