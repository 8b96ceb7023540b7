"""T-Fixup: the paper's constants, and every matrix and table that they scale."""

import math

import torch
from torch import nn

from tests.methods.test_initialisation import FUSED, XAVIER, XAVIER_FFN, D, assert_model, model

N, M = 5, 4  # layers of the models below


def scaled(query_and_key: float) -> dict[str, dict[str, float]]:
    """Bounds of the uniform distributions: v, out, fc1 and fc2 from Xavier with gain 1."""
    bounds: dict[str, dict[str, float]] = {}
    for stack, factor, sites in (
        ("encoder", 0.67 / N**0.25, ["self_attn"]),
        ("decoder", 1 / (9 * M) ** 0.25, ["self_attn", "encoder_attn"]),
    ):
        bounds[stack] = {"fc1": XAVIER_FFN * factor, "fc2": XAVIER_FFN * factor}
        for site in sites:
            bounds[stack] |= {f"{site}.{one}_proj": query_and_key for one in "qk"}
            bounds[stack] |= {f"{site}.v_proj": XAVIER * factor, f"{site}.out_proj": XAVIER * factor}
    return bounds


def test_matrices_of_the_text_and_as_released() -> None:
    """Xavier for all, v, out and feed-forward scaled, no biases.

    As released, q and k keep 1/sqrt(2), which v does not; the biases of q, k and v are random.
    """
    for base in ("xavier", "xavier_apart"):
        assert_model(model("t_fixup_transformer", base_init=base), scaled(query_and_key=XAVIER))
    built = model("t_fixup_transformer", t_fixup_rule="released", base_init="xavier_biased")
    random = {f"{site}.{one}_proj": 1 / math.sqrt(D) for site in ("self_attn", "encoder_attn") for one in "qkv"}
    assert_model(built, scaled(query_and_key=FUSED), random)


def tables(built: nn.Module) -> list[nn.Parameter]:
    modules = (built.encoder.embed_tokens, built.decoder.embed_tokens, built.decoder.output_projection)
    return list({id(module.weight): module.weight for module in modules}.values())


def test_tables() -> None:
    """Stock draws N(0, d^(-1/2)), and the same numbers here; tied and shared tables are scaled once."""
    of_encoder, of_decoder = 1 / (9 * N) ** 0.25, 1 / (9 * M) ** 0.25
    for sharing, factors in (
        ({}, [of_encoder, of_decoder, 1.0]),
        ({"share_decoder_input_output_embed": True}, [of_encoder, of_decoder]),
        ({"share_all_embeddings": True}, [of_encoder]),
    ):
        ours, stock = tables(model("t_fixup_transformer", **sharing)), tables(model("transformer", **sharing))
        for mine, drawn, factor in zip(ours, stock, factors, strict=True):
            torch.testing.assert_close(mine, drawn * factor, rtol=1e-6, atol=0)
        assert not ours[0][1].any(), "the row of the pad"


def test_one_stack_alone() -> None:
    """A shared table follows the encoder's choice."""
    plain = {"base_init": "xavier", "norm_position": "none", "share_all_embeddings": True}
    stock = tables(model("transformer", share_all_embeddings=True))[0]
    built = model("deep_transformer", **plain, init="t_fixup,keep")
    torch.testing.assert_close(tables(built)[0], stock / (9 * N) ** 0.25, rtol=1e-6, atol=0)
    built = model("deep_transformer", **plain, init="keep,t_fixup")
    assert torch.equal(tables(built)[0], stock)
    assert_model(built, {"decoder": scaled(query_and_key=XAVIER)["decoder"]})


def test_merged_attention_is_scaled_from_its_own_gain() -> None:
    """Its q, k and v are drawn with gain 1 to begin with."""
    expected = scaled(query_and_key=XAVIER)["decoder"]
    expected = {name: bound for name, bound in expected.items() if not name.startswith("self_attn")}
    assert_model(model("t_fixup_transformer", attention="matt"), {"decoder": expected})
