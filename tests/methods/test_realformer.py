"""RealFormer: what its chains of logits carry, and what is kept.

Legend: T target time, S source time, B batch, C width, H heads, D width of a head.
"""

import pytest
import torch
from torch import nn

from tests.core.saved import saved_tensors
from tests.models import batch, tiny
from tests.rounding import assert_same_to_rounding

ARCH = "realformer_transformer"
T, S, B, C, H, D = 4, 5, 2, 16, 2, 8


def with_biases(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        if "_proj.bias" in name:
            nn.init.normal_(parameter)
    return model.eval()


@torch.no_grad()
def test_a_sum_of_logits_does_not_lose_the_digits_of_half_precision() -> None:
    """1/8 on top of 2048 is lost in float16, 100 times; the sum of the logits keeps it.

    The sum of the layer below stays as it is: activation checkpointing reads it again.
    """
    module = tiny(ARCH).encoder.layers[0].self_attn.half()
    queries, keys = torch.zeros(B * H, T, D).half(), torch.zeros(B * H, S, D).half()
    queries[..., 0], keys[..., 0] = 0.125, 1.0
    assert module.accumulate(queries, keys, None).dtype == torch.float32
    below = scores = torch.full((B * H, T, S), 2048.0)
    for _ in range(100):
        scores = module.accumulate(queries, keys, scores)
    assert torch.equal(scores, torch.full((B * H, T, S), 2048 + 12.5))
    assert bool((below == 2048).all())
    assert torch.full((1,), 2048.0).half() + 0.125 == 2048


@torch.no_grad()
def test_a_layer_that_is_left_out_passes_the_chain_on() -> None:
    """The rest is the stack without that layer."""
    model = with_biases(tiny(ARCH, encoder_layerdrop=0.5, dropout=0.0))
    source, ran = batch()[:2], list[int]()
    bottom, middle, top = model.encoder.layers.children()
    for number, layer in enumerate((bottom, middle, top)):
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
    model.train()
    for seed in range(100):
        ran.clear()
        torch.manual_seed(seed)
        left = model.encoder(*source)["encoder_out"][0]
        if ran == [0, 2]:
            break
    model.encoder.layers = nn.ModuleList([bottom, top])
    assert_same_to_rounding(left, model.eval().encoder(*source)["encoder_out"][0])


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_autograd_keeps_no_scores(mode: str) -> None:
    """Each layer keeps its weights alone, as every attention does that is not fused."""
    source = batch(sentences=3, longest=11)[:2]
    for layers in (2, 5):
        model = tiny(ARCH, encoder_layers=layers, realformer_logits=mode, dropout=0.0).train()
        kept = saved_tensors(lambda encoder=model.encoder: encoder(*source)["encoder_out"][0])
        of_size = [one for one in kept if one.numel() == 3 * H * 11 * 11 and one.is_floating_point()]
        assert len({one.untyped_storage().data_ptr() for one in of_size}) == layers
