"""``post_ln`` and ``pre_ln`` are stock ``transformer_lm``: same names, first weights and numbers, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from torch import Tensor, nn

from fairseq_plugins.core.config import nested_config, plain_namespace, resolve
from fairseq_plugins.core.language_model import LANGUAGE_MODEL, DeepTransformerLanguageModel
from tests.building import settings
from tests.language_model.building import TINY, task, tiny, tokens

# Stock's `transformer_lm` keeps 512 at the decoder's ends whatever its width; ours follows the width.
ENDS = {"decoder_input_dim": 16, "decoder_output_dim": 16}
PAIRS = {"post_ln": False, "pre_ln": True}
DROPOUTS = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
CUTOFFS = {"adaptive_input": True, "adaptive_input_cutoff": "12,25", "adaptive_softmax_cutoff": "12,25"}
FACTORS = {"adaptive_input_factor": 2.0, "adaptive_softmax_factor": 2.0}
TIED = {**CUTOFFS, **FACTORS, "tie_adaptive_weights": True}
FURTHER: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "tied output": {"share_decoder_input_output_embed": True},
    "learned positions": {"decoder_learned_pos": True},
    "no positions": {"no_token_positional_embeddings": True},
    "embedding norm": {"layernorm_embedding": True, "no_scale_embedding": True},
    "other widths at the ends": {"decoder_input_dim": 8, "decoder_output_dim": 12},
    "gelu": {"activation_fn": "gelu"},
    "no norm on top": {"no_decoder_final_norm": True},
    "layer drop": {"decoder_layerdrop": 0.4},
    "pruned": {"decoder_layers_to_keep": "0,2"},
    "recomputed layers": {"checkpoint_activations": True},
    "adaptive input": {"adaptive_input": True, "adaptive_input_cutoff": "12,25", "adaptive_input_factor": 2.0},
    "adaptive softmax": {"adaptive_softmax_cutoff": "12,25", "adaptive_softmax_dropout": 0.2},
    "adaptive both": {**CUTOFFS, **FACTORS},
    "adaptive, tied words": TIED,
    "adaptive, tied words and projections": {**TIED, "tie_adaptive_proj": True, "adaptive_softmax_dropout": 0.2},
    "characters": {
        "character_embeddings": True,
        "character_filters": "[(1, 4), (2, 6)]",
        "char_embedder_highway_layers": 1,
    },
}


STOCK = {
    field.name: field.default
    for field in dataclasses.fields(TransformerLanguageModelConfig)
    if not field.name.startswith("_") and not str(field.default).startswith("${")
}
"""What stock takes where nothing is said: an architecture of the model's own name sets nothing."""


def pair(name: str, **values: Any) -> tuple[nn.Module, nn.Module]:
    """Ours and stock's, both drawn from the same seed."""
    values = {**DROPOUTS, **values}
    ours = tiny(f"{name}_transformer_lm", **values)
    stock = {**STOCK, **TINY, **ENDS, "decoder_normalize_before": PAIRS[name], **values}
    return ours, tiny("transformer_lm", **stock)


def weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the buffers that stock leaves at whatever was in memory."""
    return {name: value for name, value in tensors.items() if not name.endswith("_float_tensor")}


def assert_same_tensors(ours: Mapping[str, Tensor], stock: Mapping[str, Tensor]) -> None:
    assert list(ours) == list(stock)
    theirs = weights(stock)
    assert [name for name, value in theirs.items() if not torch.equal(ours[name], value)] == []


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("further", FURTHER)
def test_same_names_and_first_weights(name: str, further: str) -> None:
    ours, stock = pair(name, **FURTHER[further])
    assert_same_tensors(ours.state_dict(), stock.state_dict())
    assert_same_tensors(dict(ours.named_parameters()), dict(stock.named_parameters()))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("further", FURTHER)
def test_same_output_gradients_and_probabilities(name: str, further: str) -> None:
    inputs, results = tokens(), []
    ours, stock = pair(name, **FURTHER[further])
    for model in (ours, stock):
        model.train()
        torch.manual_seed(5)
        output = model(inputs, src_lengths=None)[0]
        output.float().pow(2).sum().backward()
        model.eval()
        with torch.no_grad():
            probabilities = model.get_normalized_probs(model(inputs), log_probs=True, sample={"target": inputs})
        results.append((output.detach(), probabilities))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    gradients = dict(stock.named_parameters())
    for parameter_name, parameter in ours.named_parameters():
        theirs = gradients[parameter_name].grad
        assert (parameter.grad is None) == (theirs is None), parameter_name
        assert theirs is None or torch.equal(parameter.grad, theirs), parameter_name


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


@pytest.mark.parametrize("size", ["", "_big", "_gpt", "_wiki103"])
def test_every_setting_of_an_architecture_is_stock(size: str) -> None:
    # Every stock architecture but the model's own is Pre-LN.
    flat = plain_namespace(settings(f"pre_ln_transformer_lm{size}"), DeepTransformerLanguageModel.config_class)
    ours = flattened(nested_config(flat, resolve(flat, LANGUAGE_MODEL)))
    namespace = settings(f"transformer_lm{size}", **(STOCK if not size else {}))
    namespace.decoder_normalize_before, namespace.max_target_positions = True, 1024
    stock = flattened(TransformerConfig.from_namespace(namespace))
    # No language model has an encoder, stock's decoder is told to have no cross-attention when it is built, and base
    # layers, of which that is a setting, are refused.
    other = {name for name in ours if name.startswith("encoder.")} | {"no_cross_attention", "base_shuffle"}
    assert {name: (ours[name], stock[name]) for name in ours.keys() - other if ours[name] != stock[name]} == {}
    assert ours.keys() == stock.keys()


@pytest.mark.parametrize("size", ["_big", "_gpt", "_wiki103"])
def test_every_shape_of_an_architecture_is_stock(size: str) -> None:
    # A vocabulary of 70,000 words, so that the three bands of the adaptive input exist.
    shapes = []
    for arch in (f"pre_ln_transformer_lm{size}", f"transformer_lm{size}"):
        with torch.device("meta"):
            model = ARCH_MODEL_REGISTRY[arch].build_model(settings(arch, max_target_positions=64), task(70_000))
        shapes.append({name: value.shape for name, value in model.state_dict().items()})
    assert shapes[0] == shapes[1]
    assert ("decoder.embed_tokens.embeddings.2.0.weight" in shapes[0]) == (size == "_wiki103")


def test_stock_weights_load_strictly_in_both_directions() -> None:
    ours, stock = pair("pre_ln")
    _, other = pair("pre_ln", seed=2)
    ours.load_state_dict(other.state_dict(), strict=True)
    stock.load_state_dict(ours.state_dict(), strict=True)
    assert torch.equal(stock.eval()(tokens())[0], other.eval()(tokens())[0])
