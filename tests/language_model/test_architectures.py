"""Names, sizes and choices of language models; what is said by flag and by YAML; what is refused, and how."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, build_model
from fairseq_cli import train
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fairseq_plugins.core.architectures import refusals
from fairseq_plugins.core.config import plain_namespace, resolve
from fairseq_plugins.core.language_model import LANGUAGE_MODEL, DeepTransformerLanguageModel
from fairseq_plugins.core.method import METHODS, Axis, Method, Stack
from fairseq_plugins.errors import UserError
from tests.building import settings
from tests.language_model import text
from tests.models import WORDS, methods_of, tiny
from tests.models import full as build
from tests.models import language_modeling as task

CONFIG = DeepTransformerLanguageModel.config_class
OURS = [name for name, model in ARCH_MODEL_REGISTRY.items() if model is DeepTransformerLanguageModel]
SIZES: dict[str, tuple[int, int, int, int, float, str]] = {
    "": (6, 512, 2048, 8, 0.1, "relu"),
    "_big": (12, 1024, 4096, 16, 0.1, "relu"),
    "_gpt": (12, 768, 3072, 12, 0.1, "gelu"),
    "_wiki103": (16, 1024, 4096, 8, 0.3, "relu"),
    "_enwik8_12": (12, 512, 2048, 2, 0.2, "gelu"),
    "_enwik8_64": (64, 256, 1024, 2, 0.2, "gelu"),
    "_enwik8_128": (128, 256, 1024, 2, 0.2, "gelu"),
}
"""Layers, width, feed-forward width, heads, dropout, activation: fairseq's own, and those of ReZero's experiments."""


def test_which_architectures_there_are() -> None:
    assert set(OURS) == {f"{name}_transformer_lm{size}" for name in ("deep", *METHODS) for size in SIZES}
    assert {ARCH_MODEL_NAME_REGISTRY[arch] for arch in OURS} == {"deep_transformer_lm"}


def test_a_method_that_makes_no_sense_is_refused_when_it_is_asked_for() -> None:
    """Without cross-attention there is no merged attention, and a decoder alone is no hybrid of two stacks."""
    refused = set(METHODS) - set(methods_of(DeepTransformerLanguageModel))
    assert refused == {"dsinit_matt", "dsinit_matt_self", "dsinit_matt_aan", "hybrid_ln", "t_fixup"}
    for method in refused:
        axes = {axis.value: METHODS[method].choice(axis) for axis in Axis}
        with pytest.raises(UserError) as by_parts:
            tiny("deep_transformer_lm", **axes)
        with pytest.raises(UserError) as by_name:
            settings(f"{method}_transformer_lm_gpt")
        assert by_name.value.problems == by_parts.value.problems


def test_a_preset_of_a_setting_that_only_another_family_has_is_no_language_model() -> None:
    method = Method("", "", "", "", options={"encoder_layers": 30})
    assert refusals(CONFIG, method) == ["deep_transformer_lm has no setting 'encoder_layers'"]


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: str) -> None:
    config = settings(f"rezero_transformer_lm{size}")
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    found = [getattr(config, f"decoder_{name}") for name in names]
    assert (*found, config.dropout, config.activation_fn) == SIZES[size]
    if size.startswith("_enwik8"):  # appendix A: feed-forward and attention dropout
        assert (config.attention_dropout, config.activation_dropout) == (0.2, 0.2)
    (design,) = resolve(plain_namespace(config, CONFIG), LANGUAGE_MODEL).values()
    assert (design.stack, design.encoder_layers) == (Stack.DECODER, 0)
    assert (design.decoder_layers, design.layers) == (found[0], found[0])
    assert vars(settings(**vars(config))) == vars(config), "fairseq applies an architecture twice"


def test_parameters_of_the_enwik8_models() -> None:
    """A layer has 12 d^2 + 9 d parameters (4 d^2 + 4 d, 8 d^2 + 5 d) and ReZero's alpha, and no LayerNorm."""
    for size, (layers, width, ffn, *_) in SIZES.items():
        if size.startswith("_enwik8"):
            with torch.device("meta"):
                model = build(f"rezero_transformer_lm{size}", share_decoder_input_output_embed=True)
            assert ffn == 4 * width
            counted = sum(parameter.numel() for parameter in model.parameters())
            assert counted == layers * (12 * width**2 + 9 * width + 1) + WORDS * width


def test_parameters_of_the_wikitext_model() -> None:
    """247 million: Baevski and Auli, ICLR 2019, https://arxiv.org/abs/1809.10853, table 2; 267,744 words."""
    with torch.device("meta"):
        model = DeepTransformerLanguageModel.build_model(settings("pre_ln_transformer_lm_wiki103"), task(267_744))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 247


def flags(arch: str) -> set[str]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return {name for action in parser._actions for name in action.option_strings}


def test_flags_are_those_of_stock_and_of_the_parts() -> None:
    # Translation adds one that stock's language model has.
    added = flags("deep_transformer") - flags("transformer") - {"--decoder-input-dim"}
    assert {"--norm", "--residual", "--word-dropout"} <= added
    assert flags("deep_transformer_lm") - flags("transformer_lm") == added
    assert flags("transformer_lm") - flags("deep_transformer_lm") == set()


def test_what_the_user_says_wins() -> None:
    said: dict[str, Any] = {"decoder_layers": 3, "dropout": 0.0, "adaptive_softmax_cutoff": "10"}
    said = {**said, "tie_adaptive_weights": False, "tie_adaptive_proj": False}
    config = settings("admin_transformer_lm_wiki103", **said)
    assert {name: getattr(config, name) for name in said} == said
    assert (config.decoder_embed_dim, config.adaptive_input_cutoff) == (1024, "20000,60000")


@pytest.mark.parametrize("layers", [6, 12, 100])
def test_deepnet_knows_a_decoder_alone(layers: int) -> None:
    """alpha = (2 M)^(1/4), beta = (8 M)^(-1/4): DeepNet, https://arxiv.org/abs/2203.00555, figure 2."""
    model = tiny("deepnet_transformer_lm", decoder_layers=layers, decoder_embed_dim=64, decoder_ffn_embed_dim=256)
    stream, branch = torch.ones(1, 1, 64), torch.zeros(1, 1, 64)
    for residual in ("self_attn_residual", "ffn_residual"):
        joined = getattr(model.decoder.layers[layers // 2], residual)(branch, stream, stream)
        assert joined.mean().item() == pytest.approx((2 * layers) ** 0.25, rel=1e-6)
    # Xavier normal, 64 x 64: the standard deviation is the gain times sqrt(2 / 128).
    drawn = torch.cat([layer.self_attn.out_proj.weight.flatten() for layer in model.decoder.layers])
    assert drawn.std().item() / math.sqrt(2 / 128) == pytest.approx((8 * layers) ** -0.25, rel=0.03)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"norm": "pst"}, ("unknown value of --norm 'pst'", "did you mean 'post'")),
        ({"norm": "post,pre"}, ("--norm takes one value here, not post,pre", "only a decoder")),
        ({"residual": "rezero", "norm": "none", "rezero_alpha": "0,1"}, ("--rezero-alpha takes one value here",)),
        ({"attention": "matt"}, ("--attention matt", "cross-attention")),
        ({"norm": "none", "layernorm_embedding": True}, ("--norm none", "--layernorm-embedding")),
        ({"decoder_layers": 0}, ("--decoder-layers", "at least 1")),
        ({"decoder_attention_heads": 3}, ("--decoder-embed-dim 16", "--decoder-attention-heads 3")),
        ({"dropout": 1.0}, ("--dropout", "below 1")),
        ({"decoder_normalize_before": True}, ("--decoder-normalize-before", "--norm pre")),
        ({"scale_heads": True}, ("--scale-heads is not supported",)),
        ({"quant_noise_pq": 0.1}, ("--quant-noise-pq is not supported",)),
        ({"adaptive_input": True}, ("--adaptive-input needs --adaptive-input-cutoff",)),
        ({"adaptive_softmax_cutoff": "20,ten"}, ("--adaptive-softmax-cutoff", "increasing numbers", "'20,ten'")),
        ({"adaptive_softmax_cutoff": "20,10"}, ("--adaptive-softmax-cutoff", "increasing numbers", "'20,10'")),
        ({"adaptive_softmax_cutoff": "20,50"}, ("--adaptive-softmax-cutoff 20,50", "44 words")),
        ({"adaptive_input": True, "adaptive_input_cutoff": "50"}, ("--adaptive-input-cutoff 50", "44 words")),
        ({"tie_adaptive_weights": True}, ("--tie-adaptive-weights needs --adaptive-input",)),
        ({"tie_adaptive_proj": True}, ("--tie-adaptive-proj", "no effect", "--tie-adaptive-weights")),
        (
            {
                "tie_adaptive_weights": True,
                "adaptive_input": True,
                "adaptive_input_cutoff": "10",
                "adaptive_softmax_cutoff": "12",
            },
            ("--adaptive-input-cutoff 10", "--adaptive-softmax-cutoff 12"),
        ),
        (
            {"share_decoder_input_output_embed": True, "adaptive_softmax_cutoff": "10"},
            ("--share-decoder-input-output-embed", "--adaptive-softmax-cutoff"),
        ),
        (
            {"share_decoder_input_output_embed": True, "decoder_input_dim": 8},
            ("--decoder-input-dim 8", "--decoder-output-dim 16"),
        ),
        ({"character_embeddings": True, "character_filters": "[(1, 2), 3]"}, ("--character-filters", "pairs")),
        ({"character_embeddings": True, "character_filters": "exit()"}, ("--character-filters", "'exit()'")),
        (
            {"character_embeddings": True, "adaptive_input": True, "adaptive_input_cutoff": "10"},
            ("--character-embeddings and --adaptive-input",),
        ),
        ({"word_dropout": "1.0"}, ("--word-dropout", "below 1")),
        ({"no_weight_decay_on": "norms"}, ("--no-weight-decay-on", "did you mean 'norm'")),
    ],
    ids=str,
)
def test_refusals(values: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        tiny("deep_transformer_lm", **values)
    (problem,) = caught.value.problems
    assert [word for word in words if word not in problem] == []
    assert "\n" not in problem


def test_fairseq_train_refuses_all_problems_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """That its process ends with a line for each and code 2 is tested in ``tests/config/test_refusals.py``."""
    flags = ["--task", "language_modeling", "--arch", "admin_transformer_lm", "--norm", "pst", "--init", "keep,keepp"]
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "nowhere", *flags, "--optimizer", "adam"])
    with pytest.raises(UserError) as caught:
        train.cli_main()
    assert [problem.split(";")[0] for problem in caught.value.problems] == [
        "unknown value of --norm 'pst' (did you mean 'post'?)",
        "unknown value of --init 'keepp' (did you mean 'keep'?)",
        "--init takes one value here, not keep,keepp: the model has only a decoder",
    ]


def by_yaml(directory: Path, content: dict[str, Any]) -> Any:
    """A YAML as ``fairseq-hydra-train`` reads it before it trains."""
    (directory / "run.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    hydra_init("run")
    with initialize_config_dir(config_dir=str(directory), version_base="1.1"):
        config = compose("run")
    add_defaults(config)
    config = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    OmegaConf.set_struct(config, True)
    return config


@pytest.mark.parametrize("arch", ["deep_transformer_lm", "admin_transformer_lm_gpt", "pre_ln_transformer_lm_wiki103"])
def test_the_same_by_yaml_and_by_flag(arch: str, tmp_path: Path) -> None:
    said = {"decoder_layers": 2, "decoder_embed_dim": 32, "decoder_ffn_embed_dim": 24, "dropout": 0.25}
    said = {**said, "decoder_attention_heads": 2}
    if "wiki103" in arch:
        said = {**said, "adaptive_input_cutoff": "10,20", "adaptive_softmax_cutoff": "10,20"}
    of_task = {"_name": "language_modeling", "data": "nowhere", "tokens_per_sample": 48}
    config = by_yaml(tmp_path, {"task": of_task, "model": {"_name": arch, **said}})
    flags = [one for name, value in said.items() for one in (f"--{name.replace('_', '-')}", str(value))]
    by_flag = text.parse_training(Path("nowhere"), tmp_path, arch, *flags, "--tokens-per-sample", "48", model=())
    models = []
    for one in (config, by_flag):
        torch.manual_seed(1)
        models.append(build_model(one.model, task()))
    assert [model.max_positions() for model in models] == [48, 48]
    first, second = (model.state_dict() for model in models)
    assert list(first) == list(second)
    names = [name for name in first if not name.endswith("_float_tensor")]
    assert [name for name in names if not torch.equal(first[name], second[name])] == []
    assert models[0].decoder.design == models[1].decoder.design
    if arch != "deep_transformer_lm":  # by YAML its own name keeps what was said alone
        kept = {name: (config.model[name], value) for name, value in by_flag.model.items()}
        assert {name: values for name, values in kept.items() if values[0] != values[1]} == {}
