"""Write the YAML files of the published results: ``python configs/generate.py``, or ``--check`` to only compare.

fairseq cannot chain whole configurations by ``defaults:`` (values get lost on the way), and recipes that are copied by
hand drift apart. So a recipe stands here once, :data:`CONFIGS` says which model is trained by which recipe, and the
comments take the printed results from ``fairseq_plugins/runs/published.tsv``. The files of ``multi30k_de_en`` are
written by hand.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import yaml

import fairseq_plugins  # noqa: F401  (registers the methods)
from fairseq_plugins.core.architectures import method_preset
from fairseq_plugins.core.method import METHODS, Axis
from fairseq_plugins.files import write_whole
from fairseq_plugins.runs.published import PublishedRow, rows_of

HERE = Path(__file__).resolve().parent
GROUPS = (
    "common", "distributed_training", "task", "model", "criterion", "optimizer", "lr_scheduler", "dataset",
    "optimization", "checkpoint", "generation", "eval_lm", "scoring",
)  # fmt: skip
"""The groups of a file in their order, after what is said of the sweep."""
Settings = Mapping[str, Mapping[str, Any]]


class Noted(NamedTuple):
    """A value with the comment behind it."""

    value: Any
    comment: str


def not_stated(value: Any, source: str) -> Noted:
    """A value that the paper does not give."""
    return Noted(value, f"not stated; {source}")


def merged(*parts: Settings) -> Dict[str, Dict[str, Any]]:
    """The groups of all ``parts``; a later part replaces single values of an earlier one."""
    result: Dict[str, Dict[str, Any]] = {}
    for part in parts:
        for group, values in part.items():
            result[group] = {**result.get(group, {}), **values}
    return result


@dataclass(frozen=True)
class Recipe:
    """How a paper trains on one corpus.

    Attributes:
        corpus: what the text is.
        data: how it is prepared.
        source: where the recipe is read.
        settings: the groups of the file, all but ``model``.
        model: settings of the model that are not the method's.
        gpus: how many GPUs the paper has, 0 where it does not say.
        update_freq: batches of each GPU before an update.
        end: the last part of the names of its files where another recipe has the same models.
        base_init: the initialisation that its plain models start from; the method's own where this is None.
        remarks: what a reader of each file must know.
    """

    corpus: str
    data: str
    source: str
    settings: Settings
    model: Mapping[str, Any]
    gpus: int
    update_freq: int
    end: str = ""
    base_init: Optional[str] = None
    remarks: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Config:
    """One file: a model, trained by a recipe."""

    recipe: Recipe
    method: str
    encoder: int
    decoder: int
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    sweep: Mapping[str, str] = field(default_factory=dict)
    family: str = "_transformer"
    remarks: Tuple[str, ...] = ()


# Sizes -------------------------------------------------------------------------------------------------------------


def size(width: int, ffn: int, heads: int) -> Dict[str, int]:
    """Width, feed-forward width and heads of both stacks."""
    names = {"embed_dim": width, "ffn_embed_dim": ffn, "attention_heads": heads}
    return {f"{stack}_{name}": value for name, value in names.items() for stack in ("encoder", "decoder")}


SMALL, BASE, BIG = size(512, 1024, 4), size(512, 2048, 8), size(1024, 4096, 16)


def rates(dropout: Any, attention: Any, activation: Any) -> Dict[str, Any]:
    """The three dropouts."""
    return {"dropout": dropout, "attention_dropout": attention, "activation_dropout": activation}


def translation(source: str, target: str) -> Settings:
    """The task, from one language to another."""
    return {"task": {"_name": "translation", "data": "???", "source_lang": source, "target_lang": target}}


LABEL_SMOOTHING = {"criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1}}
LOG = {"log_format": "json", "log_interval": 100}


def adam(betas: str) -> Dict[str, Any]:
    """The group ``optimizer``."""
    return {"_name": "adam", "adam_betas": betas}


def inverse_sqrt(warmup: int, start: float = 1e-7) -> Dict[str, Any]:
    """The group ``lr_scheduler``."""
    return {"_name": "inverse_sqrt", "warmup_updates": warmup, "warmup_init_lr": start}


# Admin -------------------------------------------------------------------------------------------------------------

CLINIC = "the authors' commands, github.com/LiyuanLucasLiu/Transformer-Clinic, nmt-experiments/"
ADMIN_COMMON: Settings = merged(
    LABEL_SMOOTHING,
    {
        "common": {"seed": 1111, **LOG, "fp16_scale_window": 256, "threshold_loss_scale": 0.03125},
        "optimizer": {"_name": "radam", "adam_betas": "(0.9, 0.98)"},
        "optimization": {"clip_norm": 0.0},
        "checkpoint": {"keep_last_epochs": 10},
    },
)
ADMIN_PRECISION = "Trained in fp16 by the authors, hence the two settings of the loss scale."
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
    remarks=(ADMIN_PRECISION, "Five seeds in the paper: common.seed=1111, 2222, 3333, 4444, 5555."),
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
    remarks=(
        ADMIN_PRECISION,
        "One update of warm-up, then a straight line down: stock's polynomial_decay is the released 'linear'.",
    ),
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
    remarks=(ADMIN_PRECISION, "The text says 8196 tokens, the command 8192."),
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
    remarks=(ADMIN_PRECISION, "8 GPUs in the command, 4 in the text."),
)
ADMIN_FR_DEEP = replace(
    ADMIN_FR,
    settings=merged(ADMIN_FR.settings, {"dataset": {"max_tokens": 5000}}),
    gpus=16,
    update_freq=16,
    remarks=(ADMIN_PRECISION,),
)
ADMIN_TORCH = replace(
    ADMIN_DE,
    source="the authors' script, github.com/microsoft/admin-torch, example/train_wmt_en-de.sh",
    settings=merged(
        ADMIN_DE.settings,
        {
            "common": {"threshold_loss_scale": 0.0625},
            "optimizer": adam("(0.9, 0.98)"),
            "dataset": {"max_tokens": 4096},
            "optimization": {"max_update": 1000000},
        },
    ),
    model={**ADMIN_DE.model, "admin_torch_omega": Noted("trained", "as in the script")},
    gpus=8,
    remarks=("Trained in memory-efficient fp16 by the authors.",),
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

# DS-Init and merged attention ----------------------------------------------------------------------------------------

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
AS_DE = "as for En-De"
RELEASED = {"ds_init_rule": Noted("released", "with which the paper's Table 1 comes out; 'paper' is equation 15")}

# ReZero --------------------------------------------------------------------------------------------------------------

ENWIK8 = Recipe(
    corpus="enwik8 in bytes: the first 90 million to train, 5 million each to validate and to test",
    data='scripts/prepare_enwik8.sh',
    source="the paper",
    settings={
        "common": {"seed": not_stated(1, "fairseq's default"), **LOG},
        "task": {"_name": "language_modeling", "data": "???", "tokens_per_sample": 512, "sample_break_mode": "none"},
        "criterion": {"_name": "cross_entropy"},
        "optimizer": {"_name": Noted("adam", "LAMB in the paper, which fairseq has only with NVIDIA's apex")},
        "lr_scheduler": {"_name": "fixed", "warmup_updates": 0},
        "dataset": {"required_batch_size_multiple": 1},
        "optimization": {
            "lr": not_stated([0.001], "and LAMB's would not fit Adam"),
            "clip_norm": not_stated(0.0, "no clipping is mentioned"),
            "max_update": not_stated(100000, "far beyond the 21,187 of the slowest model of Table 2"),
        },
        "checkpoint": {"no_epoch_checkpoints": True, "save_interval_updates": 1000, "keep_interval_updates": 1},
        "eval_lm": {"context_window": not_stated(400, "every byte sees at least so many before it")},
    },
    model={"share_decoder_input_output_embed": not_stated(True, "the printed counts fit one table"),
           **rates(0.2, not_stated(0.0, "fairseq's default"), not_stated(0.0, "fairseq's default")),
           "activation_fn": "gelu"},
    gpus=0,
    update_freq=24,
    remarks=(
        "Validated every 1,000 updates; finer where the update at which 1.2 bits per byte are reached matters:",
        "dataset.validate_interval_updates=100.",
    ),
)  # fmt: skip


def enwik8(samples: int, update_freq: int) -> Recipe:
    """The recipe with updates of ``samples * update_freq`` samples."""
    batch = Noted(samples * 512, f"{samples} samples; {samples * update_freq} an update")
    dataset = {"dataset": {"max_tokens": batch, "validate_interval_updates": 1000}}
    return replace(ENWIK8, settings=merged(ENWIK8.settings, dataset), update_freq=update_freq)


# B2T -----------------------------------------------------------------------------------------------------------------

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

# Which model by which recipe -----------------------------------------------------------------------------------------

THREE = ("post_ln", "pre_ln", "admin")
COMPARED = (
    "post_ln", "pre_ln", "dlcl_post_ln", "admin", "t_fixup", "realformer", "deepnet", "b2t", "b2t_without_ln",
)  # fmt: skip
"""The methods of the B2T paper's Table 1."""


def admin_configs() -> Iterator[Tuple[str, Config]]:
    """Those of the Admin paper and of admin-torch."""
    for method in (*THREE, "rezero", "rezero_post_ln"):
        yield f"iwslt14_de_en/{method}_6e6d", Config(ADMIN_IWSLT, method, 6, 6)
    for method in THREE:
        yield f"iwslt14_de_en/{method}_6e6d_no_warmup", Config(ADMIN_NO_WARMUP, method, 6, 6, sweep=GRID)
        for depth in (6, 12, 18):
            yield f"wmt14_en_de/{method}_{depth}e{depth}d", Config(ADMIN_DE, method, depth, depth)
        yield f"wmt14_en_fr/{method}_6e6d", Config(ADMIN_FR, method, 6, 6)
        yield f"wmt14_en_fr/{method}_60e12d", Config(ADMIN_FR_DEEP, method, 60, 12)
    for method in ("hybrid_ln", "rezero", "fixup", "looklinear"):
        yield f"wmt14_en_de/{method}_18e18d", Config(ADMIN_DE, method, 18, 18)
    for depth in (6, 18):
        yield f"wmt14_en_de/admin_torch_{depth}e{depth}d", Config(ADMIN_TORCH, "admin_torch", depth, depth)
    yield "wmt14_en_de/admin_torch_100e100d", Config(ADMIN_TORCH_HUGE, "admin_torch", 100, 100)


def ds_init_configs() -> Iterator[Tuple[str, Config]]:
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


def rezero_configs() -> Iterator[Tuple[str, Config]]:
    """Those of the ReZero paper."""
    twelve = ("post_ln", "pre_ln", "gpt2_norm", "rezero_alpha_one", "rezero")
    models = [(12, 512, 45, 24, twelve), (64, 256, 19, 16, twelve[3:]), (128, 256, 9, 16, twelve[4:])]
    for depth, width, batch, update_freq, methods in models:
        shape = {name: value for name, value in size(width, 4 * width, 2).items() if name.startswith("decoder")}
        for method in methods:
            yield (
                f"enwik8/{method}_{depth}d",
                Config(enwik8(batch, update_freq), method, 0, depth, shape, family="_transformer_lm"),
            )


def b2t_configs() -> Iterator[Tuple[str, Config]]:
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


CONFIGS: Dict[str, Config] = dict([*admin_configs(), *ds_init_configs(), *rezero_configs(), *b2t_configs()])
"""By the path below this directory, without ``.yaml``."""

# How it is written ---------------------------------------------------------------------------------------------------


def model_group(config: Config) -> Dict[str, Any]:
    """The group ``model``: name, axes, depths, sizes, options."""
    if config.method == "matt":
        group: Dict[str, Any] = {"_name": f"deep{config.family}"}
        preset = {**method_preset(None), "attention": "matt"}
    else:
        group = {"_name": config.method + config.family}
        preset = method_preset(METHODS[config.method])
    group.update({axis.value: preset[axis.value] for axis in Axis})
    if config.recipe.base_init and preset["base_init"] == "fairseq":
        group["base_init"] = config.recipe.base_init
    if config.encoder:
        group["encoder_layers"] = config.encoder
    group["decoder_layers"] = config.decoder
    return {**group, **config.recipe.model, **config.model}


def groups(config: Config) -> Dict[str, Dict[str, Any]]:
    """All groups of a file."""
    update_freq = {"optimization": {"update_freq": [max(1, config.recipe.gpus) * config.recipe.update_freq]}}
    every = merged(config.recipe.settings, update_freq, {"model": model_group(config)}, config.settings)
    return {name: every[name] for name in GROUPS if name in every}


def plain(value: Any) -> Any:
    """A value without its comment."""
    return value.value if isinstance(value, Noted) else value


def tokens(config: Config) -> Tuple[str, int]:
    """The arithmetic of an update in words, and its result."""
    recipe = config.recipe
    batch = plain(recipe.settings["dataset"]["max_tokens"])
    gpus = f"{recipe.gpus} GPU{'s'[recipe.gpus == 1 :]} x " if recipe.gpus else ""
    words = f"{gpus}max_tokens {batch:,} x update_freq {recipe.update_freq}"
    return words, max(1, recipe.gpus) * batch * recipe.update_freq


def heading(name: str, config: Config) -> List[str]:
    """The comment at the head of a file."""
    corpus, _, file = name.partition("/")
    rows = rows_of(name)
    depth = f"{config.decoder} layers"
    if config.encoder:
        depth = f"{config.encoder} encoder and {config.decoder} decoder layers"
    title = "MAtt without DS-Init" if config.method == "matt" else METHODS[config.method].title
    factors, product = tokens(config)
    lines = [f"{title}, {depth}. {config.recipe.corpus}.", *map(result_line, _first(rows))]
    if config.sweep:
        lines.append(f"{rows[0].paper}, {rows[0].table}: {len(rows)} results, in fairseq_plugins/runs/published.tsv.")
    elif len(rows) > len(_first(rows)):
        lines.append(f"{len(rows) - len(_first(rows))} more in fairseq_plugins/runs/published.tsv.")
    lines += [
        f"Recipe: {config.recipe.source}.",
        f"Data: {config.recipe.data}; DIR below is the full path of the data-bin that it makes.",
        "",
    ]
    flag = " -m" if config.sweep else ""
    lines += [
        f"  fairseq-deep hydra-train{flag} --config-dir configs/{corpus} --config-name {file} task.data=DIR", "",
        f"An update has at most {factors} = {product:,} tokens{_paper_figure(config, rows, product)}.",
        _update_freq_line(config),
        *config.recipe.remarks,
        *config.remarks,
        "Written by configs/generate.py: change it there.",
    ]  # fmt: skip
    return [part for line in lines for part in _comment(line)]


def _comment(line: str) -> List[str]:
    """A line as comments of at most 120 characters; a command stays whole."""
    if not line or line.startswith(" "):
        return [f"# {line}".rstrip()]
    return textwrap.wrap(line, 120, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)


def _first(rows: Sequence[PublishedRow]) -> Sequence[PublishedRow]:
    """The rows that a heading shows."""
    return rows[:4] if rows and rows[0].table != "Figure 10" else ()


def result_line(row: PublishedRow) -> str:
    """One published result."""
    overrides = f" with {' '.join(row.overrides)}" if row.overrides else ""
    metric = f"{row.metric} ({row.scorer})" if row.metric == "BLEU" else row.metric
    return f"{row.paper}, {row.table}, {row.row}{overrides}: {row.printed}{'' if row.failed else ' ' + metric}."


def _paper_figure(config: Config, rows: Sequence[PublishedRow], product: int) -> str:
    """What the paper says beside our arithmetic."""
    said = {row.tokens_per_update for row in rows if not row.overrides} or {row.tokens_per_update for row in rows}
    if said == {None}:
        return "; the paper's figure is not stated"
    if said != {product}:
        raise SystemExit(f"error: {config}: {product} tokens an update, and {said} in published.tsv")
    return ", as in the paper"


def _update_freq_line(config: Config) -> str:
    gpus, update_freq = config.recipe.gpus, config.recipe.update_freq
    product = f"{gpus} x {update_freq}" if gpus else f"{update_freq}, the number of GPUs is not stated"
    return (
        f"update_freq below is for one process ({product}); for more, it is divided by their number, which "
        "scripts/train.sh does."
    )


def text_of(name: str) -> str:
    """The file of that name."""
    config = CONFIGS[name]
    lines = heading(name, config)
    if config.sweep:
        lines += ["hydra:", "  sweeper:", "    params:"]
        lines += [f"      {key}: {_scalar(values)}" for key, values in config.sweep.items()]
    for group, values in groups(config).items():
        lines.append(f"{group}:")
        lines += [f"  {key}: {_written(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    comment = f"  # {value.comment}" if isinstance(value, Noted) else ""
    return _scalar(plain(value)) + comment


def _scalar(value: Any) -> str:
    """A value as YAML reads it back: PyYAML takes 1e-07 for text, so that a number gets its point."""
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")
    return yaml.safe_dump(value, default_flow_style=True, width=1000).partition("\n")[0]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args(argv).check
    stale = []
    for name in CONFIGS:
        path = HERE / f"{name}.yaml"
        if not path.exists() or path.read_text(encoding="utf-8") != text_of(name):
            stale.append(name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                write_whole(path, text_of(name))
    for name in stale:
        if check:
            print(f"error: configs/{name}.yaml is out of date: run `python configs/generate.py`", file=sys.stderr)
        else:
            print(f"configs/{name}.yaml: written")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
