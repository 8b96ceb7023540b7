"""DeepScaleLM: its sum, its recursion by hand, and the variance that they are made to keep."""

import math

import pytest

from fairseq_plugins.core.initialisation import linear_maps
from fairseq_plugins.core.method import Site
from fairseq_plugins.methods.deepscale import correlations
from tests.models import tiny

ARCH = "deepscale_transformer"
BERT = (Site.SELF, Site.FFN)


# The authors' function sigma_attn_v_out (revision 7f48e64) returns this at width 1,024, dropout 0.1: the deviation
# of values and outputs, by layer; None for its form without lambda and beta.
RELEASED: list[tuple[int, float | None, dict[int, float]]] = [
    (2, 0.25, {0: 0.04557765254144895, 1: 0.03828715407206008}),
    (192, 0.005, {1: 0.045328419704396446, 95: 0.03615815897850074, 191: 0.03378787782310766}),
    (4, None, {1: 0.035200813780993385, 3: 0.03348164553555234}),
]


def test_correlations_are_those_of_the_released_code() -> None:
    for layers, share, deviations in RELEASED:
        seen, _ = correlations(BERT, layers, 0.1, share)
        found = {layer: math.sqrt(math.sqrt(0.9 / seen[layer][Site.SELF]) / 1024) for layer in deviations}
        assert found == pytest.approx(deviations, rel=1e-12)


@pytest.mark.parametrize(("k", "share"), [("2", 2 / 6), ("0.1,2", 0.1 / 6)])
def test_weights_have_the_variances(k: str, share: float) -> None:
    """4,096 numbers or more estimate a deviation to within 1.1 %, so 5 % is safe; ``share`` is the encoder's."""
    wide = {f"{stack}_{size}": 64 for stack in ("encoder", "decoder") for size in ("embed_dim", "ffn_embed_dim")}
    model = tiny(ARCH, dropout=0.2, deepscale_k=k, **wide)
    encoder, above = correlations(BERT, 3, 0.2, share)
    decoder, _ = correlations((Site.SELF, Site.CROSS, Site.FFN), 2, 0.2, 2 / 6, above)
    for stack, seen in ((model.encoder, encoder), (model.decoder, decoder)):
        for layer, found in zip(stack.layers, seen, strict=True):
            for name, linear in linear_maps(layer):
                owner, _, kind = name.rpartition(".")
                if kind in ("q_proj", "k_proj"):
                    variance = 1 / 64
                elif owner:
                    variance = math.sqrt(0.8 / found[Site(owner)]) / 64
                else:
                    variance = math.sqrt(2 * 0.8 / 64**2)
                assert float(linear.weight.detach().std()) == pytest.approx(math.sqrt(variance), rel=0.05), name
                assert not linear.bias.any()
    table = model.encoder.embed_tokens.weight.detach()
    assert not table[model.encoder.padding_idx].any()
    assert float(table[4:].std()) == pytest.approx(math.sqrt(0.4 / 64), rel=0.1)


def test_a_stack_of_one_layer_keeps_half_of_its_stream() -> None:
    residual = tiny(ARCH, encoder_layers=1).encoder.layers[0].ffn_residual
    assert (residual.stream.number, residual.branch.number) == pytest.approx((math.sqrt(0.5), math.sqrt(0.5)))
