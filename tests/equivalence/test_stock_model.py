"""``post_ln`` and ``pre_ln`` are stock fairseq: same names, same first weights, same numbers, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from torch import nn

from fairseq_plugins.core.config import nested_config, plain_namespace, resolve
from fairseq_plugins.core.model import DEPTHS, SIZES, DeepTransformerModel
from tests.building import batch, build, logits, settings, tiny

BOTH = {"encoder_normalize_before": True, "decoder_normalize_before": True}
PAIRS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "post_ln": ("post_ln_transformer", {}, {}),
    "pre_ln": ("pre_ln_transformer", {}, BOTH),
    "no_method": ("deep_transformer", {}, {}),
    "hybrid": ("post_ln_transformer", {"norm": "post,pre"}, {"decoder_normalize_before": True}),
    "other_hybrid": ("post_ln_transformer", {"norm": "pre,post"}, {"encoder_normalize_before": True}),
}
"""Name: our architecture and settings, and the settings of stock ``transformer`` that mean the same."""
DROPOUTS = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
FURTHER: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "one table": {"share_all_embeddings": True},
    "tied output": {"share_decoder_input_output_embed": True},
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "no positions": {"no_token_positional_embeddings": True},
    "embedding norm": {"layernorm_embedding": True, "no_scale_embedding": True},
    "unequal widths": {"encoder_embed_dim": 12, "encoder_attention_heads": 3, "decoder_output_dim": 16},
    "gelu": {"activation_fn": "gelu"},
    "layer drop": {"encoder_layerdrop": 0.4, "decoder_layerdrop": 0.4},
    "no cross-attention": {"no_cross_attention": True},
    "recomputed layers": {"checkpoint_activations": True},
    "adaptive softmax": {"adaptive_softmax_cutoff": "20,30", "adaptive_softmax_dropout": 0.0},
}


def pair(name: str, **values: Any) -> tuple[nn.Module, nn.Module]:
    """Ours and stock's, both drawn from the same seed."""
    arch, ours, stock = PAIRS[name]
    values = {**DROPOUTS, **values}
    return tiny(arch, **values, **ours), tiny("transformer", **values, **stock)


def assert_same_tensors(ours: dict[str, Any], stock: dict[str, Any]) -> None:
    assert list(ours) == list(stock)
    different = [name for name in stock if not torch.equal(ours[name], stock[name])]
    assert different == []


HYBRIDS_WITH = ("as it comes", "unequal widths", "layer drop", "no cross-attention")
"""What one stack may get from the other's choice of norm; the other settings are seen with a norm for both stacks."""
TOGETHER = [
    pytest.param(name, further, marks=[pytest.mark.slow] if "hybrid" in name and further not in HYBRIDS_WITH else [])
    for further in FURTHER
    for name in PAIRS
]


@pytest.mark.parametrize(("name", "further"), TOGETHER)
def test_same_names_weights_output_and_gradients(name: str, further: str) -> None:
    values, inputs = FURTHER[further], batch()
    ours, stock = pair(name, **values)
    assert_same_tensors(ours.state_dict(), stock.state_dict())
    assert_same_tensors(dict(ours.named_parameters()), dict(stock.named_parameters()))
    results = []
    for model in (ours, stock):
        model.train()
        output = logits(model, inputs, seed=5)
        output.float().pow(2).sum().backward()
        trained = output.detach()
        model.eval()
        with torch.no_grad():
            results.append((trained, logits(model, inputs)))
    (our_train, our_eval), (stock_train, stock_eval) = results
    assert torch.equal(our_train, stock_train)
    assert torch.equal(our_eval, stock_eval)
    assert not torch.equal(our_train, our_eval), "dropout was on"
    gradients = dict(stock.named_parameters())
    for parameter_name, parameter in ours.named_parameters():
        theirs = gradients[parameter_name].grad
        assert (parameter.grad is None) == (theirs is None), parameter_name
        assert theirs is None or torch.equal(parameter.grad, theirs), parameter_name


@pytest.mark.parametrize("name", PAIRS)
def test_same_states_and_attention_weights(name: str) -> None:
    ours, stock = (model.eval() for model in pair(name))
    inputs = batch()
    with torch.no_grad():
        ours_encoded, stock_encoded = (
            model.encoder(inputs.src_tokens, inputs.src_lengths, return_all_hiddens=True) for model in (ours, stock)
        )
        assert ours_encoded.keys() == stock_encoded.keys()
        # Stock keeps a list of None there for models that put out their feed-forward results.
        assert stock_encoded.pop("fc_results") == [None] * 3
        for key, values in stock_encoded.items():
            assert len(ours_encoded[key]) == len(values), key
            assert all(torch.equal(a, b) for a, b in zip(ours_encoded[key], values, strict=True)), key
        for alignment in ({}, {"alignment_layer": 0}, {"alignment_layer": 1, "alignment_heads": 1}):
            (_, our_extra), (_, stock_extra) = (
                model(*inputs, return_all_hiddens=True, **alignment) for model in (ours, stock)
            )
            assert torch.equal(our_extra["attn"][0], stock_extra["attn"][0])
            assert len(our_extra["inner_states"]) == len(stock_extra["inner_states"]) == 3
            assert all(map(torch.equal, our_extra["inner_states"], stock_extra["inner_states"]))


def flattened(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of a nested ``TransformerConfig``."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            values.update(flattened(value, f"{prefix}{field.name}."))
        elif not field.name.startswith("_"):
            values[prefix + field.name] = value
    return values


@pytest.mark.parametrize(("method", "before"), [("post_ln", False), ("pre_ln", True)])
@pytest.mark.parametrize("size", SIZES)
def test_every_setting_of_an_architecture_is_stock(method: str, before: bool, size: str) -> None:
    flat = plain_namespace(settings(f"{method}_transformer{size}"), DeepTransformerModel.config_class)
    ours = flattened(nested_config(flat, resolve(flat)))
    namespace = settings(SIZES[size])
    for stack in ("encoder", "decoder"):
        setattr(namespace, f"{stack}_normalize_before", before)
    # Stock takes the two limits from the task, and the widths at the decoder's ends from the architecture.
    namespace.max_source_positions = namespace.max_target_positions = 1024
    stock = flattened(TransformerConfig.from_namespace(namespace))
    assert {name: (value, stock[name]) for name, value in ours.items() if value != stock[name]} == {}
    assert ours.keys() == stock.keys()


@pytest.mark.parametrize(("size", "depth"), [("_iwslt_de_en", ""), ("_wmt_en_de", "_60_12"), ("_wmt_en_de_big", "_12")])
def test_every_shape_of_an_architecture_is_stock(size: str, depth: str) -> None:
    encoder, decoder = DEPTHS[depth] or (6, 6)
    layers = {"encoder_layers": encoder, "decoder_layers": decoder}
    with torch.device("meta"):
        ours = build(f"post_ln_transformer{size}{depth}").state_dict()
        stock = build(SIZES[size], **layers).state_dict()
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in stock.items()}


def test_stock_weights_load_strictly_in_both_directions() -> None:
    ours, stock = pair("post_ln")
    other = tiny("transformer", seed=2)
    ours.load_state_dict(other.state_dict(), strict=True)
    stock.load_state_dict(ours.state_dict(), strict=True)
    assert_same_tensors(stock.state_dict(), other.state_dict())
    assert torch.equal(logits(stock.eval(), batch()), logits(other.eval(), batch()))
