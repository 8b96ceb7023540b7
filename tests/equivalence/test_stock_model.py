"""``post_ln`` and ``pre_ln`` are stock fairseq in every family: same names, first weights and numbers, bit for bit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from fairseq_plugins.core.config import nested_config, plain_namespace, resolve
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.model import SIZES, DeepTransformerModel
from fairseq_plugins.core.speech_to_text import SPEECH_TO_TEXT, DeepS2TTransformerModel
from tests.models import TINY_LANGUAGE_MODEL, batch, settings, speech, text, tiny

Settings = dict[str, Any]
BEFORE = ("encoder_normalize_before", "decoder_normalize_before")
DROPOUTS = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
CUTOFFS = {"adaptive_input": True, "adaptive_input_cutoff": "12,25", "adaptive_softmax_cutoff": "12,25"}
TIED = {**CUTOFFS, "adaptive_input_factor": 2.0, "adaptive_softmax_factor": 2.0, "tie_adaptive_weights": True}
OF_LANGUAGE_MODEL = {
    field.name: field.default
    for field in dataclasses.fields(TransformerLanguageModelConfig)
    if not field.name.startswith("_") and not str(field.default).startswith("${")
}
"""Stock's own defaults: an architecture of the model's own name sets nothing."""


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models, and stock's.

    Attributes:
        model: our class.
        stock: name of stock's architecture.
        pairs: our architectures and settings, with stock's settings that mean the same.
        further: settings of both.
        given: the inputs of a forward pass.
        unset: what stock takes where nothing is said.
    """

    model: type[DesignedModel]
    stock: str
    pairs: dict[str, tuple[str, Settings, Settings]]
    further: dict[str, Settings]
    given: Callable[[], tuple[Tensor, ...]]
    unset: Settings = dataclasses.field(default_factory=dict)

    def pair(self, name: str, **values: Any) -> tuple[nn.Module, nn.Module]:
        """Ours and stock's, both drawn from the same seed."""
        arch, ours, stock = self.pairs[name]
        values = {**DROPOUTS, **values}
        return tiny(arch, **{**values, **ours}), tiny(self.stock, **{**self.unset, **stock, **values})


FAMILIES = {
    "translation": Family(
        DeepTransformerModel,
        "transformer",
        {
            "post_ln": ("post_ln_transformer", {}, {}),
            "pre_ln": ("pre_ln_transformer", {}, dict.fromkeys(BEFORE, True)),
            "no_method": ("deep_transformer", {}, {}),
            "hybrid": ("post_ln_transformer", {"norm_position": "post,pre"}, {"decoder_normalize_before": True}),
            "other_hybrid": ("post_ln_transformer", {"norm_position": "pre,post"}, {"encoder_normalize_before": True}),
        },
        {
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
        },
        lambda: batch().inputs,
    ),
    "language model": Family(
        DeepTransformerLanguageModel,
        "transformer_lm",
        {
            "post_ln": ("post_ln_transformer_lm", {}, {"decoder_normalize_before": False}),
            "pre_ln": ("pre_ln_transformer_lm", {}, {"decoder_normalize_before": True}),
        },
        {
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
            "adaptive both": {**TIED, "tie_adaptive_weights": False},
            "adaptive, tied words": TIED,
            "adaptive, all tied": {**TIED, "tie_adaptive_proj": True, "adaptive_softmax_dropout": 0.2},
        },
        lambda: text()[:1],
        # Stock keeps 512 at the decoder's ends for every width; ours follows the width.
        {**OF_LANGUAGE_MODEL, **TINY_LANGUAGE_MODEL, "decoder_input_dim": 16, "decoder_output_dim": 16},
    ),
    "speech to text": Family(
        DeepS2TTransformerModel,
        "s2t_transformer",
        {
            name: (f"{name}_s2t_transformer", {}, dict(zip(BEFORE, before, strict=True)))
            for name, before in {"pre_ln": (True, True), "post_ln": (False, False), "hybrid_ln": (False, True)}.items()
        },
        {
            "as it comes": {},
            "three convolutions": {"conv_kernel_sizes": "3,5,3"},
            "two-dimensional convolutions": {"conv_version": "convtransformer"},
            "tied output": {"share_decoder_input_output_embed": True},
            "embedding norm": {"layernorm_embedding": True, "no_scale_embedding": True},
            "gelu": {"activation_fn": "gelu"},
            "a decoder of another width": {"decoder_embed_dim": 12, "decoder_ffn_embed_dim": 20},
            "frozen encoder": {"encoder_freezing_updates": 5},
            "CTC": {"ctc_weight": 0.3},
        },
        lambda: speech().inputs,
    ),
}
HYBRIDS_WITH = ("as it comes", "unequal widths", "layer drop", "no cross-attention")
"""Settings that one stack may get from the other's choice of norm; other settings are seen with norms in both."""
PAIRS = [(family, name) for family, kind in FAMILIES.items() for name in kind.pairs]


TOGETHER = [
    pytest.param(
        *(family, name, further),
        marks=[pytest.mark.slow] if name.endswith("hybrid") and further not in HYBRIDS_WITH else [],
    )
    for family, name in PAIRS
    for further in FAMILIES[family].further
]
"""Every pair with every further settings."""


def tensors(value: Any) -> dict[str, Tensor]:
    """Every tensor in nested lists and dictionaries, by its place."""
    leaves = tree_flatten_with_path(value)[0]
    return {keystr(path): leaf for path, leaf in leaves if isinstance(leaf, Tensor)}


def assert_same(ours: Any, stock: Any) -> None:
    """The same tensors in the same order, but for the buffers that stock leaves uninitialised."""
    found, wanted = tensors(ours), tensors(stock)
    assert list(found) == list(wanted) != []
    different = [name for name, value in wanted.items() if not torch.equal(found[name], value)]
    assert [name for name in different if "_float_tensor" not in name] == []


@pytest.mark.parametrize(("family", "name", "further"), TOGETHER)
def test_same_names_weights_output_and_gradients(family: str, name: str, further: str) -> None:
    """With the same names and shapes a checkpoint of either loads into the other."""
    kind = FAMILIES[family]
    ours, stock = kind.pair(name, **kind.further[further])
    assert_same(ours.state_dict(), stock.state_dict())
    given, trained, evaluated, gradients = kind.given(), [], [], []
    for model in (ours, stock):
        model.train()
        torch.manual_seed(5)
        output = model(*given)
        trained.append([output, model.get_ctc_output(output, None) if further == "CTC" else ()])
        output[0].float().pow(2).sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        model.eval()
        with torch.no_grad():
            output = model(*given)
            sample = {"target": given[-1]}
            evaluated.append([output, model.get_normalized_probs(output, log_probs=True, sample=sample)])
    assert_same(*trained)
    assert_same(*evaluated)
    assert_same(*gradients)
    assert not torch.equal(trained[0][0][0], evaluated[0][0][0]), "dropout was on"
    frozen = [name for name in gradients[0] if ".transformer_layers." in name and gradients[0][name] is None]
    assert (frozen != []) == (further == "frozen encoder")


@pytest.mark.parametrize(("family", "name"), [pair for pair in PAIRS if pair[0] != "language model"])
def test_same_states_and_attention_weights(family: str, name: str) -> None:
    ours, stock = (model.eval() for model in FAMILIES[family].pair(name))
    given = FAMILIES[family].given()
    with torch.no_grad():
        encoded = [model.encoder(*given[:2], return_all_hiddens=True) for model in (ours, stock)]
        assert encoded[0].keys() == encoded[1].keys()
        assert len(encoded[0]["encoder_states"]) >= 3
        assert_same(*encoded)
        for alignment in ({}, {"alignment_layer": 0}, {"alignment_layer": 1, "alignment_heads": 1}):
            found, wanted = (
                model.decoder(given[2], encoder_out=one, return_all_hiddens=True, **alignment)[1]
                for model, one in zip((ours, stock), encoded, strict=True)
            )
            assert_same(found, wanted)


LIMITS = {"max_source_positions": 6000, "max_target_positions": 1024}
ARCHITECTURES: list[tuple[str, str, str, Settings, Settings]] = (
    [
        ("translation", f"{method}_transformer{size}", stock, {}, dict.fromkeys(BEFORE, method == "pre_ln"))
        for size, stock in SIZES.items()
        for method in ("post_ln", "pre_ln")
    ]
    + [
        # Every stock architecture but the model's own is Pre-LN.
        ("language model", f"pre_ln_transformer_lm{size}", f"transformer_lm{size}", {}, {BEFORE[1]: True})
        for size in ("", "_big", "_gpt", "_wiki103")
    ]
    + [
        ("speech to text", f"pre_ln_s2t_transformer{size}", f"s2t_transformer{size}", LIMITS, {})
        for size in SPEECH_TO_TEXT.sizes
    ]
)


def test_every_setting_of_an_architecture_is_stock() -> None:
    for family, arch, stock_arch, said, of_stock in ARCHITECTURES:
        model = FAMILIES[family].model
        flat = plain_namespace(settings(arch, **said), model.config_class)
        ours = dataclasses.asdict(nested_config(flat, resolve(flat, model.family)))
        theirs = settings(stock_arch, **said, **(OF_LANGUAGE_MODEL if stock_arch == "transformer_lm" else {}))
        # Stock takes the two limits from the task.
        vars(theirs).update({**dict.fromkeys(LIMITS, 1024), **said, **of_stock})
        stock = dataclasses.asdict(TransformerConfig.from_namespace(theirs))
        if family == "language model":
            # It has no encoder, stock's decoder is told to have no cross-attention when it is built, and base layers,
            # of which the last is a setting, are refused.
            for name in ("encoder", "max_source_positions", "no_cross_attention", "base_shuffle"):
                del ours[name], stock[name]
        assert ours == stock, arch
        front_end = [name for name in model.family.presettable if name.startswith(("conv", "encoder_freezing"))]
        assert len(front_end) == (5 if family == "speech to text" else 0)
        assert [name for name in front_end if getattr(flat, name) != getattr(theirs, name)] == [], arch


@pytest.mark.parametrize("family", ["translation", "language model"])
def test_layers_whose_activations_are_offloaded_are_recomputed(family: str) -> None:
    """Stock's sized architectures read it so: offloading alone means both."""
    model, runs = FAMILIES[family].pair("post_ln", offload_activations=True)[0], []
    model.decoder.layers[0].fc1.register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    model.train()(*FAMILIES[family].given())[0].float().sum().backward()
    assert runs == [False, True]
