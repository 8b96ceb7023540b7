"""Architectures: names, sizes and choices, and what a user says against what an architecture presets."""

from __future__ import annotations

from typing import Any

import pytest
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY

from fairseq_plugins.core.config import SIZE_FIELDS, plain_namespace, resolve
from fairseq_plugins.core.method import METHODS, Axis, Stack
from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.core.norm import NormPlace, norms_always
from tests.building import settings, tiny

OURS = sorted(name for name, model in ARCH_MODEL_REGISTRY.items() if model is DeepTransformerModel)
SIZES = {
    "": (512, 2048, 8, 0.1),
    "_iwslt_de_en": (512, 1024, 4, 0.1),
    "_wmt_en_de": (512, 2048, 8, 0.1),
    "_wmt_en_de_big": (1024, 4096, 16, 0.3),
}
"""Width, feed-forward width, heads, dropout."""
DEPTHS = {"": (6, 6), "_12": (12, 12), "_18": (18, 18), "_60_12": (60, 12), "_100": (100, 100)}


def test_every_method_has_every_size_and_depth() -> None:
    names = ["deep", *METHODS]
    expected = {f"{name}_transformer{size}{depth}" for name in names for size in SIZES for depth in DEPTHS}
    assert set(OURS) == expected
    assert {ARCH_MODEL_NAME_REGISTRY[arch] for arch in OURS} == {"deep_transformer"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_sizes_and_choices(size: str, depth: str) -> None:
    for name, method in METHODS.items():
        config = settings(f"{name}_transformer{size}{depth}")
        width, ffn, heads, dropout = SIZES[size]
        for stack, layers in zip(Stack, DEPTHS[depth], strict=True):
            sizes = [f"{stack.value}_{one}" for one in ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")]
            assert [getattr(config, one) for one in sizes] == [width, ffn, heads, layers]
        assert config.dropout == method.options.get("dropout", dropout)
        assert config.activation_dropout == 0.0
        designs = resolve(plain_namespace(config, DeepTransformerModel.config_class))
        for stack in Stack:
            chosen = {axis: designs[stack].choice(axis) for axis in Axis}
            halves = {axis: method.choice(axis).split(",") for axis in Axis}
            assert chosen == {axis: half[-1 if stack is Stack.DECODER else 0] for axis, half in halves.items()}, name
            assert designs[stack].layers == getattr(config, f"{stack.value}_layers")


def test_a_second_pass_changes_nothing() -> None:
    """fairseq applies an architecture to the flags and once more before it builds the model."""
    changed = []
    for arch in OURS:
        once = settings(arch)
        changed += [arch] if vars(settings(**vars(once))) != vars(once) else []
    assert changed == []


def test_what_the_user_says_wins() -> None:
    said: dict[str, Any] = {
        "encoder_layers": 4,
        "decoder_layers": 3,
        "encoder_embed_dim": 32,
        "decoder_ffn_embed_dim": 7,
        "dropout": 0.0,
        "norm": "post,post",
        "base_init": "fairseq",
        "admin_profile": "paper",
    }
    config = settings("admin_transformer_iwslt_de_en_18", **said)
    assert {name: getattr(config, name) for name in said} == said
    assert (config.decoder_embed_dim, config.encoder_ffn_embed_dim) == (512, 1024)
    assert config.residual == "admin"


@pytest.mark.parametrize("arch", ["transformer", "transformer_iwslt_de_en", "transformer_wmt_en_de_big"])
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"encoder_embed_dim": 64},
        {"encoder_ffn_embed_dim": 64},
        {"decoder_embed_dim": 64},
        {"decoder_ffn_embed_dim": 64},
        {"encoder_embed_dim": 64, "decoder_ffn_embed_dim": 32},
        {"encoder_layers": 2},
        {"encoder_attention_heads": 2},
    ],
    ids=str,
)
def test_what_is_not_said_follows_stock(arch: str, said: dict[str, Any]) -> None:
    """In ``transformer`` the decoder's widths follow the encoder's; in the sizes of the corpora they do not."""
    ours, stock = settings(f"post_ln_{arch}", **said), settings(arch, **said)
    assert {name: getattr(ours, name) for name in SIZE_FIELDS} == {name: getattr(stock, name) for name in SIZE_FIELDS}


def test_an_option_takes_a_value_for_each_stack() -> None:
    config = settings("ds_init_transformer", ds_init_alpha="0.5, 2", ds_init_rule="released", norm="pre,post")
    designs = resolve(plain_namespace(config, DeepTransformerModel.config_class))
    encoder, decoder = designs[Stack.ENCODER], designs[Stack.DECODER]
    assert (encoder.options.ds_init_alpha, decoder.options.ds_init_alpha) == (0.5, 2.0)
    assert (encoder.options.ds_init_rule, decoder.options.ds_init_rule) == ("released", "released")
    assert (encoder.choice(Axis.NORM), decoder.choice(Axis.NORM)) == ("pre", "post")
    assert [norms_always(design, NormPlace.BEFORE) for design in (encoder, decoder)] == [True, False]


def test_a_method_is_the_sum_of_its_parts() -> None:
    """``--arch deep_transformer`` with the method's choices said one by one is the method."""
    others = []
    for name, method in METHODS.items():
        chosen = {axis.value: method.choice(axis) for axis in Axis}
        options = {option: value if option == "dropout" else str(value) for option, value in method.options.items()}
        whole = tiny(f"{name}_transformer").state_dict()
        parts = tiny("deep_transformer", **chosen, **options).state_dict()
        same = list(whole) == list(parts) and all(bool((value == parts[key]).all()) for key, value in whole.items())
        others += [] if same else [name]
    assert others == []
