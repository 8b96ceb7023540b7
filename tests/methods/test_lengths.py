"""ScaleNorm, FixNorm, SmallInit and the cosines of QKNorm."""

import math
from typing import Any

import torch
from torch import nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.methods.scale_norm import ScaleNorm, UnitRows, UnitVectors
from fairseq_plugins.methods.shared.precision import inverse_rms, unit
from tests.models import batch, logits, tiny


def test_scale_norm_by_hand() -> None:
    """|(3, 4)| = 5, and g starts at the root of the width; in half precision 300^2 would be infinite."""
    norm, x = ScaleNorm(4), torch.tensor([[3.0, 0.0, 4.0, 0.0], [0.0] * 4])
    torch.testing.assert_close(norm(x), torch.tensor([[1.2, 0.0, 1.6, 0.0], [0.0] * 4]))
    half = norm.half()(torch.tensor([300.0, 0.0, 400.0, 0.0], dtype=torch.float16))
    torch.testing.assert_close(half.float(), torch.tensor([1.2, 0.0, 1.6, 0.0]), rtol=1e-3, atol=0)


def test_lengths_stay_in_float32_under_autocast() -> None:
    """The square of a pad's vector, zero, is raised to 1e-24, which half precision does not have."""
    x = torch.tensor([[300.0, 0.0, 1.001, 0.0], [0.0] * 4])
    expected = unit(x, 1e-12), inverse_rms(x)
    with torch.autocast("cpu", torch.float16):
        found = unit(x, 1e-12), inverse_rms(x)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_drawn_lengths_of_word_vectors_do_not_matter() -> None:
    for shared in ({}, {"share_all_embeddings": True}, {"share_decoder_input_output_embed": True}):
        model: Any = tiny("scale_norm_transformer", **shared).eval()
        output = model.decoder.output_projection
        assert not model.decoder.embed_tokens(torch.tensor([1])).any(), "pads stay zero"
        before = logits(model, batch())
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, (UnitVectors, UnitRows)):
                    module.weight.mul_(7)
        torch.testing.assert_close(logits(model, batch()), before)
        model.make_generation_fast_()
        torch.testing.assert_close(logits(model, batch()), before)
        lengths = output.weight.norm(dim=1)
        torch.testing.assert_close(lengths, lengths.gt(0).float())


def test_a_shared_table_has_no_gradient_at_the_zero_vector_of_pads() -> None:
    """Divided by a length of 1e-12 it would be all of the gradient's norm, by which the others are clipped."""
    model: Any = tiny("scale_norm_transformer", share_all_embeddings=True)
    logits(model, batch()).logsumexp(-1).sum().backward()
    lengths = model.encoder.embed_tokens.weight.grad.norm(dim=1)
    assert float(lengths[1]) == 0
    assert 0 < float(lengths.max()) < 100 * float(lengths[lengths > 0].median())


def test_small_init() -> None:
    """N(0, 2 / (C + 4C)) for attention, N(0, 2 / (C + F)) for the feed-forward, U(-0.01, 0.01)'s size for words."""
    model: Any = tiny("scale_norm_transformer", encoder_embed_dim=64, encoder_ffn_embed_dim=128)
    layer = model.encoder.layers[0]
    for linear, inner in ((layer.self_attn.q_proj, 256), (layer.self_attn.out_proj, 256), (layer.fc1, 128)):
        assert abs(float(linear.weight.detach().var()) / (2 / (64 + inner)) - 1) < 0.1
        assert not linear.bias.any()
    words = model.encoder.embed_tokens.weight[2:].detach()
    assert abs(float(words.square().mean()) / (0.01**2 / 3) - 1) < 0.15
    other = tiny("scale_norm_transformer", reparam="plain").encoder.embed_tokens
    assert type(other) is nn.Embedding


def test_the_largest_logit_of_cosines_starts_as_the_paper_says() -> None:
    """log2(L^2 - L) for sentences of L tokens."""
    model: Any = tiny("cosine_attention_transformer", cosine_length="4,2")
    starts = [one.q_proj.norm.scale.item() for one in model.modules() if isinstance(one, Attention)]
    expected = [math.log2(4 * 4 - 4)] * 3 + [math.log2(2 * 2 - 2)] * 4
    torch.testing.assert_close(torch.tensor(starts), torch.tensor(expected))
