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
def test_admin_adds_an_omega_to_each_residual(depth: str, expected: int) -> None:
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


FEWEST_WORDS, MOST_WORDS = 55_021, 55_024
"""Source and target vocabulary together: the only sizes that give the printed sizes below."""


def printed(arch: str, words: int, **values: Any) -> str:
    """Millions of parameters as Zhang et al. (EMNLP 2019) print them, of their models for English to German.

    The source has a table of its own, the target's is tied to the softmax; their code adds a vector to the embeddings.
    """
    number = count(arch, 27_510, words - 27_510, share_decoder_input_output_embed=True, **values) + 512
    return f"{number / 1e6:.1f}"


TWENTY = {"encoder_layers": 20, "decoder_layers": 20}


@pytest.mark.parametrize("words", [FEWEST_WORDS, MOST_WORDS])
@pytest.mark.parametrize(
    ("arch", "values", "millions"),
    [
        ("ds_init_transformer", {}, "72.3"),
        ("dsinit_matt_transformer", {}, "66.0"),
        ("dsinit_matt_self_transformer", {}, "72.3"),
        ("ds_init_transformer_12", {}, "116.4"),
        ("pre_ln_transformer_12", {}, "116.5"),
        ("dsinit_matt_transformer_12", {}, "103.8"),
        ("ds_init_transformer", TWENTY, "175.3"),
        ("dsinit_matt_transformer", TWENTY, "154.3"),
    ],
)
def test_table_3_of_ds_init(arch: str, values: dict[str, int], millions: str, words: int) -> None:
    assert printed(arch, words, **values) == millions


def test_other_vocabularies_do_not_give_table_3_of_ds_init() -> None:
    assert printed("pre_ln_transformer_12", FEWEST_WORDS - 1) == "116.4"
    assert printed("ds_init_transformer_12", MOST_WORDS + 1) == "116.5"


def test_a_self_attention_in_the_merged_sub_layer_keeps_all_its_maps() -> None:
    """Table 3 prints 72.3 for it; with the output map of the cross-attention it would be 70.7."""
    base = stacks("ds_init_transformer")
    assert base == 44_138_496
    assert base - stacks("dsinit_matt_self_transformer") == 6 * 1024
    shared = 44_138_496 - 6 * (1024 + 512 * 512 + 512)
    assert f"{(shared + 512 * FEWEST_WORDS + 512) / 1e6:.1f}" == "70.7"


def test_the_gated_average_in_the_merged_sub_layer_does_not_have_the_size_that_is_printed() -> None:
    """The one entry of table 3 that no layout gives: 72.2 would be 9,960 to 26,880 parameters a layer below the base
    model, whose attentions have 262,144 in each matrix and 6,144 in all biases and LayerNorms together.
    """
    assert 44_138_496 - stacks("dsinit_matt_aan_transformer") == 6 * (1024 + 1024)
    assert {printed("dsinit_matt_aan_transformer", words) for words in (FEWEST_WORDS, MOST_WORDS)} == {"72.3"}


def test_average_attention_of_the_base_model() -> None:
    """4 d^2 + 2 d instead of 4 d^2 + 4 d, and 2 d f + f + d for the network."""
    assert 44_138_496 - stacks("aan_transformer") == 6 * 1024
    assert stacks("aan_transformer", aan_ffn="yes") - 44_138_496 == 6 * (2 * 512 * 2048 + 2048 + 512 - 1024)


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
