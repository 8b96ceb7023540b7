"""``pre_ln`` and ``post_ln`` are stock ``s2t_transformer``: same names, first weights and numbers, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from torch import nn

from fairseq_plugins.core.config import nested_config, plain_namespace, resolve
from fairseq_plugins.core.speech_to_text import SPEECH_TO_TEXT, DeepS2TTransformerModel
from tests import models
from tests.models import TINY_SPEECH_TO_TEXT as TINY
from tests.models import settings, speech

PAIRS = {"pre_ln": (True, True), "post_ln": (False, False), "hybrid_ln": (False, True)}
FURTHER: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "three convolutions": {"conv_kernel_sizes": "3,5,3"},
    "two-dimensional convolutions": {"conv_version": "convtransformer"},
    "tied output": {"share_decoder_input_output_embed": True},
    "embedding norm": {"layernorm_embedding": True, "no_scale_embedding": True},
    "gelu": {"activation_fn": "gelu"},
    "a decoder of another width": {"decoder_embed_dim": 12, "decoder_ffn_embed_dim": 20},
    "frozen encoder": {"encoder_freezing_updates": 5},
    "CTC": {"ctc_weight": 0.3},
}


def build(arch: str, seed: int = 1, **values: Any) -> nn.Module:
    torch.manual_seed(seed)
    return models.full(arch, **values)


def pair(name: str, **values: Any) -> tuple[nn.Module, nn.Module]:
    """Ours and stock's, both drawn from the same seed."""
    values = {**TINY, "dropout": 0.2, **values}
    before = {f"{stack}_normalize_before": one for stack, one in zip(("encoder", "decoder"), PAIRS[name], strict=True)}
    return build(f"{name}_s2t_transformer", **values), build("s2t_transformer", **values, **before)


def assert_same_tensors(ours: dict[str, Any], stock: dict[str, Any]) -> None:
    assert list(ours) == list(stock)
    names = [name for name in stock if not name.endswith("_float_tensor")]
    assert [name for name in names if not torch.equal(ours[name], stock[name])] == []


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("further", FURTHER)
def test_same_names_and_first_weights(name: str, further: str) -> None:
    ours, stock = pair(name, **FURTHER[further])
    assert_same_tensors(ours.state_dict(), stock.state_dict())
    assert_same_tensors(dict(ours.named_parameters()), dict(stock.named_parameters()))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("further", FURTHER)
def test_same_output_and_gradients(name: str, further: str) -> None:
    inputs, results = speech(), []
    ours, stock = pair(name, **FURTHER[further])
    for model in (ours, stock):
        model.train()
        torch.manual_seed(5)
        output, extra = model(*inputs)
        output.float().pow(2).sum().backward()
        model.eval()
        with torch.no_grad():
            evaluated = model(*inputs)[0]
            head = model.get_ctc_output((output, extra), None) if further == "CTC" else [output]
        results.append([output.detach(), evaluated, extra["encoder_out"]["encoder_out"][0], *head])
    assert len(results[0]) == len(results[1])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))
    assert not torch.equal(results[0][0], results[0][1]), "dropout was on"
    gradients = dict(stock.named_parameters())
    trained = 0
    for parameter_name, parameter in ours.named_parameters():
        theirs = gradients[parameter_name].grad
        assert (parameter.grad is None) == (theirs is None), parameter_name
        assert theirs is None or torch.equal(parameter.grad, theirs), parameter_name
        trained += theirs is not None and parameter_name.startswith("encoder.transformer_layers")
    assert (trained == 0) == (further == "frozen encoder")


@pytest.mark.parametrize("name", ["pre_ln", "post_ln"])
def test_same_states(name: str) -> None:
    ours, stock = (model.eval() for model in pair(name))
    features, lengths, _ = speech()
    with torch.no_grad():
        first, second = (model.encoder(features, lengths, return_all_hiddens=True) for model in (ours, stock))
    assert first.keys() == second.keys()
    assert [len(first[key]) for key in first] == [len(second[key]) for key in second]
    assert len(first["encoder_states"]) == 3
    assert all(map(torch.equal, first["encoder_states"], second["encoder_states"]))
    assert torch.equal(first["encoder_padding_mask"][0], second["encoder_padding_mask"][0])


def test_the_encoder_is_frozen_for_as_long_as_is_said() -> None:
    model = build("b2t_s2t_transformer", **TINY, encoder_freezing_updates=2).train()
    for update, learns in enumerate((False, False, True)):
        model.zero_grad()
        model.set_num_updates(update)
        model(*speech())[0].sum().backward()
        layers = model.encoder.transformer_layers
        assert all((parameter.grad is not None) == learns for parameter in layers.parameters()), update


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


@pytest.mark.parametrize("size", SPEECH_TO_TEXT.sizes)
def test_every_setting_of_an_architecture_is_stock(size: str) -> None:
    limits = {"max_source_positions": 6000, "max_target_positions": 1024}
    flat = plain_namespace(settings(f"pre_ln_s2t_transformer{size}", **limits), DeepS2TTransformerModel.config_class)
    stock = settings(f"s2t_transformer{size}", **limits)
    ours = flattened(nested_config(flat, resolve(flat, SPEECH_TO_TEXT)))
    theirs = flattened(TransformerConfig.from_namespace(stock))
    assert {name: (value, theirs[name]) for name, value in ours.items() if value != theirs[name]} == {}
    names = [name for name in SPEECH_TO_TEXT.presettable if name.startswith(("conv", "encoder_freezing"))]
    assert len(names) == 5
    assert {name: getattr(flat, name) for name in names} == {name: getattr(stock, name) for name in names}
