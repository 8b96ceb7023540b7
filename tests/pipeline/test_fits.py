"""The memory that ``run`` announces, against the tensors that torch keeps for the backward pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fairseq_plugins.pipeline.fits import ACTIVATIONS, bytes_of_activations
from tests.models import full, inputs

WORDS_IN_A_SENTENCE, SENTENCES = 16, 4
SIZES = {"encoder_embed_dim": 32, "decoder_embed_dim": 32, "encoder_ffn_embed_dim": 48, "decoder_ffn_embed_dim": 48}


def settings(encoder_layers: int, decoder_layers: int) -> dict[str, Any]:
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    return {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers, **SIZES, **heads}


def kept(encoder_layers: int, decoder_layers: int) -> int:
    """Bytes that a forward pass leaves for the backward pass, without the parameters."""
    torch.manual_seed(1)
    model = full("post_ln_transformer", **settings(encoder_layers, decoder_layers), dropout=0.1).train()
    parameters = {each.untyped_storage().data_ptr() for each in model.parameters()}
    found: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        # With the tensor itself, since its address is free for another one afterwards.
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(*inputs(WORDS_IN_A_SENTENCE, WORDS_IN_A_SENTENCE, SENTENCES))
    return sum(size for address, (size, _) in found.items() if address not in parameters)


def announced(encoder_layers: int, decoder_layers: int, **more: object) -> int:
    model = SimpleNamespace(**settings(encoder_layers, decoder_layers), **more)
    return bytes_of_activations(model, WORDS_IN_A_SENTENCE * SENTENCES)


@pytest.mark.parametrize("more", [(2, 0), (0, 2)], ids=list(ACTIVATIONS))
def test_what_a_layer_keeps(more: tuple[int, int]) -> None:
    measured = kept(1 + more[0], 1 + more[1]) - kept(1, 1)
    # The masks of attention and the sums of its softmax grow with the sentences, not with the width.
    assert announced(1 + more[0], 1 + more[1]) - announced(1, 1) == pytest.approx(measured, rel=0.1)


def test_layers_that_are_computed_again_keep_their_inputs() -> None:
    tokens = WORDS_IN_A_SENTENCE * SENTENCES
    one = announced(0, 1, checkpoint_activations=True)
    assert announced(0, 5, checkpoint_activations=True) - one == 4 * 4 * 32 * tokens


def test_sizes_by_fairseqs_other_names_and_none_of_convolutions() -> None:
    nested = SimpleNamespace(
        encoder=SimpleNamespace(layers=2, embed_dim=32, ffn_embed_dim=48),
        decoder=SimpleNamespace(layers=1, embed_dim=32, ffn_embed_dim=48),
    )
    assert bytes_of_activations(nested, WORDS_IN_A_SENTENCE * SENTENCES) == announced(2, 1)
    assert bytes_of_activations(SimpleNamespace(encoder_layers="[(256, 3)] * 4", encoder_embed_dim=256), 10) == 0


def test_a_language_model_has_no_cross_attention() -> None:
    model = SimpleNamespace(decoder_layers=3, decoder_embed_dim=32, decoder_ffn_embed_dim=48)
    assert bytes_of_activations(model, 10) == 10 * 4 * 3 * (8.625 * 32 + 48)
    assert bytes_of_activations(model, None) == 0
