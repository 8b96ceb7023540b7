"""FixUp: where each scalar stands, how many there are, what the weights start from, and that nothing else is left."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fairseq_plugins.core.method import Site
from fairseq_plugins.core.sub_layers import sites_of
from tests.methods.test_initialisation import FUSED, XAVIER, XAVIER_FFN, assert_uniform, model
from tests.models import WORDS, batch, count, logits, tiny

T, B, C = 5, 2, 16
N, M = 5, 4  # layers of the models of test_initialisation
BRANCHES = 2 * N + 3 * M
QKV = ("q_proj", "k_proj", "v_proj")


def test_number_of_branches_of_the_whole_model() -> None:
    """2 N + 3 M, fewer where sub-layers are absent, the same number in both stacks; 2 M in a language model."""
    small = {"encoder_layers": 3, "decoder_layers": 2}
    structures: list[tuple[str, dict[str, Any], int]] = [
        ("", {"encoder_layers": 6, "decoder_layers": 6}, 30),
        ("", {"encoder_layers": 60, "decoder_layers": 12}, 156),
        ("", {**small, "attention": "matt"}, 2 * 3 + 2 * 2),
        ("", {**small, "no_cross_attention": True}, 2 * 3 + 2 * 2),
        ("_lm", {"decoder_layers": 3}, 6),
    ]
    for family, structure, branches in structures:
        built = tiny(f"fixup_transformer{family}", **structure)
        plain = tiny(f"deep_transformer{family}", norm_position="none", base_init="xavier", **structure)
        for (_, stack), (_, other) in zip(built.stacks(), plain.stacks(), strict=True):
            ours, theirs = (part.layers[-1].fc1.weight for part in (stack, other))
            torch.testing.assert_close(ours, theirs * branches**-0.5, rtol=1e-6, atol=0)
        assert not built.decoder.output_projection.weight.any()


def test_an_adaptive_softmax_keeps_its_weights() -> None:
    """Two matrices in a row at zero would never leave it."""
    built = tiny("fixup_transformer_lm", adaptive_softmax_cutoff="20,30")
    assert all(bool(weight.any()) for weight in built.decoder.adaptive_softmax.parameters())


def both_stacks(built: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for stack in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(built, stack).layers):
            yield f"{stack}.layers.{number}", layer


def test_distribution_of_every_matrix() -> None:
    """q, k, v: Xavier of (3 d, d) times L^(-1/6); fc1: Xavier times L^(-1/2); the last ones zero.

    Merged attention has four matrices as well: its q, k and v are drawn with gain 1.
    """
    merged = 2 * N + 2 * M
    for values, branches, cross, bound in (
        ({"fixup_rule": "paper"}, BRANCHES, BRANCHES, FUSED),
        ({"fixup_rule": "released"}, BRANCHES, 12, FUSED),
        ({"attention": "matt"}, merged, merged, XAVIER),
    ):
        for name, layer in both_stacks(model("fixup_transformer", **values)):
            for site in sites_of(layer)[:-1]:
                attention = getattr(layer, site.value)
                own, number = (bound, cross) if site is Site.CROSS else (FUSED, branches)
                for one in QKV:
                    weight = getattr(attention, one).weight.detach()
                    assert_uniform(weight, own * number ** (-1 / 6), f"{name}.{site.value}")
                assert not attention.out_proj.weight.any()
            assert_uniform(layer.fc1.weight.detach(), XAVIER_FFN * branches**-0.5, name)
            assert not layer.fc2.weight.any()


def test_an_output_projection_of_its_own_starts_at_zero() -> None:
    """One that is the token table does not; tables are stock's."""
    for sharing in ({}, {"share_decoder_input_output_embed": True}, {"share_all_embeddings": True}):
        built, stock = model("fixup_transformer", **sharing), model("transformer", **sharing)
        assert torch.equal(built.encoder.embed_tokens.weight, stock.encoder.embed_tokens.weight)
        assert torch.equal(built.decoder.embed_tokens.weight, stock.decoder.embed_tokens.weight)
        projection = built.decoder.output_projection.weight
        assert (projection is built.decoder.embed_tokens.weight) == bool(sharing)
        assert bool(projection.any()) == bool(sharing)


def test_nothing_but_matrices_and_scalars() -> None:
    built = tiny("fixup_transformer")
    assert {p.dim() for p in built.parameters() if p.numel() > 1} == {2}
    assert [name for name in built.state_dict() if name.endswith("bias")] == []
    assert [name for name, module in built.named_modules() if isinstance(module, nn.LayerNorm)] == []
    # fairseq's trainer takes all parameters that are None for one shared parameter, and logs every pair.
    for _, layer in both_stacks(built):
        assert all(value is not None for module in layer.modules() for value in module._parameters.values())
    # Matrices 4 d^2 + 2 d f and 8 d^2 + 2 d f, scalars 6 and 8; three scalars on top; the two tables and the output.
    d, f = 512, 2048
    layers = 6 * (4 * d * d + 2 * d * f + 6) + 6 * (8 * d * d + 2 * d * f + 8)
    assert count("fixup_transformer") == layers + 3 + 3 * WORDS * d


def randomise(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape) + (0.5 if parameter.numel() == 1 else 0.0))


@torch.no_grad()
def test_dropouts_stand_before_the_scale_and_before_the_last_shift() -> None:
    """Everything dropped behind the activation leaves W_2 (0 - b_3), everything dropped on the branch the stream."""
    layer = tiny("fixup_transformer", dropout=0.5, activation_dropout=0.5).encoder.layers[0].train()
    randomise(layer)
    x = torch.randn(T, B, C)
    layer.self_attn_residual.alpha.zero_()
    layer.activation_dropout_module.forward = torch.zeros_like
    layer.dropout_module.forward = lambda branch: branch
    dropped = -float(layer.fc2.shift) * layer.fc2.weight.sum(dim=1)
    torch.testing.assert_close(layer(x, None)[0], x + float(layer.ffn_residual.alpha) * dropped)
    layer.dropout_module.forward = torch.zeros_like
    assert torch.equal(layer(x, None)[0], x)


def test_biases_of_q_k_and_v_are_zero_and_belong_to_nobody() -> None:
    """Stock attention concatenates them, so that they cannot be absent; they follow the model's type and are not
    stored. A checkpoint loses nothing, whichever numbers the base draws."""
    for base in ("fairseq", "xavier", "xavier_biased"):
        built, other = (tiny("fixup_transformer", base_init=base, seed=seed).half() for seed in (1, 2))
        kept = built.state_dict().keys() | dict(built.named_parameters()).keys()
        biases = {name: value for name, value in built.named_buffers() if name.endswith("_proj.bias")}
        assert len(biases) == 3 * (3 + 2 * 2)
        assert not biases.keys() & kept
        assert all(value.dtype == torch.float16 and not value.any() for value in biases.values())
        randomise(built)
        other.load_state_dict(built.state_dict(), strict=True)
        ours, theirs = (logits(one.float().eval(), batch()) for one in (built, other))
        assert torch.equal(ours, theirs)


def test_a_branch_that_does_not_end_in_a_linear_map() -> None:
    """Average attention ends in a gate: its one matrix stays as it is, with its network three shrink by L^(-1/4)."""
    for ffn, factor in (("no", 1.0), ("yes", BRANCHES ** (-1 / 4))):
        built = model("fixup_transformer", attention="aan", aan_ffn=ffn)
        plain = model("deep_transformer", norm_position="none", base_init="xavier", attention="aan", aan_ffn=ffn)
        for ours, theirs in zip(built.decoder.layers, plain.decoder.layers, strict=True):
            for name, weight in theirs.self_attn.named_parameters():
                if weight.dim() == 2:
                    torch.testing.assert_close(ours.self_attn.get_parameter(name), weight * factor, rtol=1e-6, atol=0)
            assert not ours.fc2.weight.any()
