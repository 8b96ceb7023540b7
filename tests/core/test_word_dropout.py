"""Word dropout: whole vectors, at the rate asked for, in training only, before anything is added to them."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.word_dropout import WordDropout
from tests.models import batch, logits, tiny

QUIET = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def dropped_rows(module: WordDropout, shape: tuple[int, int, int]) -> Tensor:
    """Which vectors of ones became zero, ``(B, T)``; every other one is still of ones, that is, not rescaled."""
    result = module(torch.ones(shape))
    zero = (result == 0).all(dim=-1)
    assert bool(((result == 1).all(dim=-1) | zero).all())
    return zero


def test_the_rate_is_the_share_of_zero_vectors_and_the_start_symbol_of_the_decoder_is_kept() -> None:
    count = 40_000
    for rate in (0.1, 0.5, 0.9):
        share = float(dropped_rows(WordDropout(rate), (200, count // 200, 3)).float().mean())
        assert abs(share - rate) < 4 * math.sqrt(rate * (1 - rate) / count)
    assert not dropped_rows(WordDropout(0.9, keep_first=True), (500, 4, 2))[:, 0].any()
    assert dropped_rows(WordDropout(0.9), (500, 4, 2))[:, 0].any()


def test_nothing_in_evaluation_and_no_random_number_at_rate_zero() -> None:
    x = torch.randn(3, 4, 5)
    assert torch.equal(WordDropout(0.9).eval()(x), x)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(WordDropout(0.0)(x), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_each_stack_has_its_rate() -> None:
    for rates, expected in (("0.3", (0.3, 0.3)), ("0.1,0.2", (0.1, 0.2)), ("0", (0.0, 0.0))):
        model = tiny("post_ln_transformer", word_dropout=rates)
        assert (model.encoder.word_dropout.rate, model.decoder.word_dropout.rate) == expected
        assert not model.encoder.word_dropout.keep_first
        assert model.decoder.word_dropout.keep_first


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_position_of_a_dropped_word_remains(stack: str) -> None:
    """With every word dropped the first layer sees only the positions."""
    model = tiny("post_ln_transformer", **QUIET).train()
    part = getattr(model, stack)
    part.word_dropout.forward = torch.zeros_like
    seen: list[Tensor] = []
    part.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    data = batch(sentences=1)
    logits(model, data)
    words = data.source if stack == "encoder" else data.previous
    torch.testing.assert_close(seen[0].transpose(0, 1), part.embed_positions(words))


def test_words_are_dropped_before_they_are_scaled() -> None:
    """The table's own vectors are handed over: the scale sqrt(C) and the dropout come later."""
    model = tiny("post_ln_transformer").train()
    seen: list[Tensor] = []
    for stack in (model.encoder, model.decoder):
        stack.word_dropout.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    data = batch()
    logits(model, data)
    assert torch.equal(seen[0], model.encoder.embed_tokens(data.source))
    assert torch.equal(seen[1], model.decoder.embed_tokens(data.previous))
