"""Numbers of parameters that papers, public logs and arithmetic give; no model here is given memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.building import count

JOINED = {"share_all_embeddings": True}
IWSLT = {"source": 8848, "target": 6632, "share_decoder_input_output_embed": True}


def stacks(arch: str, **values: Any) -> int:
    """Parameters of both stacks without the embeddings; width 512."""
    return count(arch, **JOINED, **values) - 44 * 512


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("post_ln_transformer_iwslt_de_en", 31_543_296),
        ("post_ln_transformer", 44_138_496),
        ("post_ln_transformer_12", 88_276_992),
        ("post_ln_transformer_wmt_en_de_18", 132_415_488),
        ("post_ln_transformer_wmt_en_de_60_12", 239_591_424),
    ],
)
def test_stacks_of_post_ln(arch: str, expected: int) -> None:
    assert stacks(arch) == expected


@pytest.mark.parametrize(
    ("depth", "expected"),
    [("", 60_915_712), ("_12", 105_054_208), ("_18", 149_192_704), ("_60_12", 256_368_640), ("_big", 209_911_808)],
)
def test_wmt_en_de_with_a_joined_dictionary_of_32768(depth: str, expected: int) -> None:
    assert count(f"post_ln_transformer_wmt_en_de{depth}", 32768, 32768, **JOINED) == expected


def test_iwslt_de_en() -> None:
    assert count("post_ln_transformer_iwslt_de_en", **IWSLT) == 39_469_056
    assert count("post_ln_transformer_iwslt_de_en", **{**IWSLT, "target": 6640}) == 39_473_152
    assert count("post_ln_transformer_iwslt_de_en", 8848, 6632) == 42_864_640


@pytest.mark.parametrize(("depth", "expected"), [("", 15_360), ("_18", 46_080), ("_60_12", 79_872)])
def test_admin_adds_an_omega_to_each_junction(depth: str, expected: int) -> None:
    assert stacks(f"admin_transformer{depth}") - stacks(f"post_ln_transformer{depth}") == expected


def test_admin_of_iwslt_with_its_joined_dictionary() -> None:
    assert count("admin_transformer_iwslt_de_en", 10_152, 10_152, **JOINED) == 36_741_120 + 15_360


def test_a_frozen_omega_is_no_parameter_and_a_scalar_one_is_one() -> None:
    post_ln = stacks("post_ln_transformer")
    assert stacks("admin_transformer", admin_omega="frozen") == post_ln
    assert stacks("admin_transformer", admin_scale="scalar") == post_ln + 2 * 6 + 3 * 6


@settings(max_examples=8)
@given(
    layers=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    heads=st.integers(1, 3),
    ffn=st.integers(1, 40),
    vocabulary=st.integers(10, 60),
    joined=st.booleans(),
)
def test_merged_attention_saves_4_d_squared_plus_6_d_a_layer(
    layers: tuple[int, int], heads: int, ffn: int, vocabulary: int, joined: bool
) -> None:
    width = 8 * heads
    values: dict[str, Any] = {"share_all_embeddings": joined, "encoder_layers": layers[0], "decoder_layers": layers[1]}
    for stack in ("encoder", "decoder"):
        values[f"{stack}_attention_heads"] = heads
        values[f"{stack}_embed_dim"], values[f"{stack}_ffn_embed_dim"] = width, ffn
    sizes = (vocabulary, vocabulary)
    saved = count("ds_init_transformer", *sizes, **values) - count("dsinit_matt_transformer", *sizes, **values)
    assert saved == layers[1] * (4 * width**2 + 6 * width)


def test_merged_attention_of_the_base_model_saves_1051648_a_layer() -> None:
    assert stacks("ds_init_transformer") - stacks("dsinit_matt_transformer") == 6 * 1_051_648


@pytest.mark.parametrize("method", ["ds_init", "b2t"])
def test_methods_without_parameters_of_their_own(method: str) -> None:
    assert stacks(f"{method}_transformer_12") == 88_276_992


def test_rezero_has_one_scalar_a_layer_and_no_layer_norm() -> None:
    norms = 6 * 2 * 2 * 512 + 6 * 3 * 2 * 512
    base = 44_138_496
    assert stacks("rezero_transformer") == base - norms + 12
    assert stacks("rezero_transformer", rezero_alpha_per="sublayer") == base - norms + 6 * 2 + 6 * 3
    assert stacks("rezero_post_ln_transformer") == base + 12


def test_pre_ln_has_one_more_norm_on_each_stack_and_the_hybrid_on_one() -> None:
    assert stacks("pre_ln_transformer") == 44_138_496 + 2 * 2 * 512
    assert stacks("post_ln_transformer", norm="post,pre") == 44_138_496 + 2 * 512
