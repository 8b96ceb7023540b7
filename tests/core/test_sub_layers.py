"""Sub-layers by name, in the order in which they run."""

import random

import pytest

from fairseq_plugins.core.method import Site
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.sub_layers import NORM_OF, forward_order, place_of, sites_of, sub_layers
from tests.models import tiny
from tests.observe.diagnostics.measured import subject

PLACES = {
    "encoder.layers.2.self_attn.q_proj.weight": "encoder.layers.2.self_attn",
    "encoder.layers.2.self_attn_layer_norm.bias": "encoder.layers.2.self_attn",
    "decoder.layers.10.encoder_attn_residual.omega": "decoder.layers.10.encoder_attn",
    "decoder.layers.10.fc2.weight": "decoder.layers.10.ffn",
    "decoder.layers.10.final_layer_norm.weight": "decoder.layers.10.ffn",
    "decoder.layers.10.ffn_residual": "decoder.layers.10.ffn",
    "encoder.transformer_layers.0.fc1.weight": "encoder.transformer_layers.0.ffn",
    "encoder.layers.1._fsdp_wrapped_module._fpw_module.fc1.weight": "encoder.layers.1.ffn",
}
NOWHERE = ("encoder.embed_tokens.weight", "decoder.history.norms.3.weight", "encoder.subsample.conv_layers.0.weight")


def test_a_name_tells_its_sub_layer() -> None:
    for name, sub_layer in PLACES.items():
        place = place_of(name)
        assert place is not None
        assert place.site is not None
        assert place.name == sub_layer
        assert f"{place.stack}.{sub_layer.split('.')[1]}.{place.number}.{place.site.value}" == sub_layer
        assert place_of(sub_layer) == place
    assert [name for name in NOWHERE if place_of(name) is not None] == []
    assert place_of("encoder.layers.4.novelty.weight") == ("encoder", 4, None, "encoder.layers.4")


def test_names_sort_as_a_forward_pass_meets_them() -> None:
    names = [
        "encoder.embed_tokens",
        "encoder.layers.2.self_attn",
        "encoder.layers.2.ffn",
        "encoder.layers.2.novelty",
        "encoder.layers.10.ffn",
        "encoder.layer_norm",
        "decoder.embed_positions",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.encoder_attn",
        "decoder.layers.0.ffn",
        "decoder.output_projection",
    ]
    mixed = random.Random(1).sample(names, len(names))
    assert sorted(mixed, key=forward_order) == names


@pytest.mark.parametrize(("method", "decoder_sites"), [("pre_ln", list(Site)), ("dsinit_matt", [Site.CROSS, Site.FFN])])
def test_a_model_has_its_sub_layers(method: str, decoder_sites: list[Site]) -> None:
    # Neither LayerDrop nor activation checkpointing hides one.
    model = subject(method, encoder_layerdrop=0.9, decoder_layerdrop=0.9, checkpoint_activations=True).build().train()
    subs = sub_layers(model)
    sites = {"encoder": [Site.SELF, Site.FFN], "decoder": decoder_sites}
    layers = {"encoder": 3, "decoder": 2}
    expected = [
        (f"{stack}.layers.{number}.{site.value}", stack, number, site)
        for stack, count in layers.items()
        for number in range(count)
        for site in sites[stack]
    ]
    assert [(sub.name, sub.stack, sub.number, sub.site) for sub in subs] == expected
    modules = dict(model.named_modules())
    for sub in subs:
        assert sub.layer is modules[f"{sub.stack}.layers.{sub.number}"]
        assert sub.residual is modules[f"{sub.name}_residual"]
        assert sub.norm is modules[sub.beside(NORM_OF[sub.site])]
        assert list(sites_of(sub.layer)) == sites[sub.stack]


def test_the_encoder_for_speech_has_the_names_of_its_state_dict() -> None:
    model = tiny("pre_ln_s2t_transformer")
    assert {f"{sub.name}_residual" for sub in sub_layers(model)} == {
        name for name, module in model.named_modules() if isinstance(module, Residual)
    }
    assert sub_layers(model)[0].name == "encoder.transformer_layers.0.self_attn"
