"""DLCL: mixtures against the equations, the paper's sizes, and memory that grows linearly with depth."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.methods.dlcl import initial_weights
from tests.models import inputs as batch
from tests.models import tiny

FORMS = {"dlcl_transformer": "pre", "dlcl_post_ln_transformer": "post"}
every_form = pytest.mark.parametrize("arch", FORMS)


# Weights of a new model --------------------------------------------------------------------------------------------


def test_initial_weights() -> None:
    a, b = 1 / 2, 1 / 3
    whole = [[1, 0, 0, 0], [a, a, 0, 0], [b, b, b, 0], [1 / 4] * 4]
    assert torch.equal(initial_weights(4, 4, "average"), torch.tensor(whole))
    of_two = [[1.0, 0, 0, 0], [a, a, 0, 0], [0, a, a, 0], [0, 0, a, a]]
    assert torch.equal(initial_weights(4, 2, "average"), torch.tensor(of_two))
    assert torch.equal(initial_weights(3, 3, "one"), torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 1, 1]]))
    assert torch.equal(initial_weights(3, 1, "one"), torch.eye(3))


# Memory ------------------------------------------------------------------------------------------------------------


def saved_bytes(run: Callable[[], Tensor], parameters: list[nn.Parameter]) -> int:
    """Bytes of all storages that autograd keeps for the backward pass of ``run``, each once, without parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    storages: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)  # so that no address is used twice
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(run())
    return sum(storages.values())


def through(history: nn.Module, layers: int, x: Tensor) -> Tensor:
    """The loop of a stack over layers that save one state each, their output."""
    states = [x]
    for _ in range(layers):
        states = history.remember(states, torch.tanh(history(states)))
    return history(states)


def bytes_of_history(arch: str, layers: int, weights: str) -> int:
    history = tiny(arch, encoder_layers=layers, dlcl_weights=weights).encoder.history
    return saved_bytes(lambda: through(history, layers, torch.randn(7, 3, 16)), list(history.parameters()))


@every_form
@pytest.mark.parametrize("weights", ["scalar", "dimension"])
def test_memory_of_a_history_is_linear_in_its_depth(arch: str, weights: str) -> None:
    state = 7 * 3 * 16 * 4
    eight, sixteen, twenty_four = (bytes_of_history(arch, layers, weights) for layers in (8, 16, 24))
    assert sixteen - eight == twenty_four - sixteen
    # Two states a layer, y_k and what is normalised, and a mean and a deviation for each position.
    assert sixteen - eight == 8 * (2 * state + 2 * 7 * 3 * 4)


@torch.no_grad()
@every_form
def test_decoding_caches_keys_and_values_alone(arch: str) -> None:
    caches = []
    for name in (arch, "post_ln_transformer"):
        model, data, cache = tiny(name).eval(), batch(), {}
        encoder_out = model.encoder(data.src_tokens, data.src_lengths)
        for step in (1, 2, 3):
            model.decoder(data.prev_output_tokens[:, :step], encoder_out, incremental_state=cache)
        entries = [entry for state in cache.values() for entry in state.items()]
        caches.append([(key, None if value is None else tuple(value.shape)) for key, value in entries])
    assert len(caches[0]) == 2 * 2 * 3
    assert caches[0] == caches[1]


@every_form
def test_what_is_out_of_the_window_is_forgotten(arch: str) -> None:
    history = tiny(arch, dlcl_window="2").encoder.history
    states = [torch.randn(2, 2, 16)]
    for _ in range(3):
        before = list(states)
        states = history.remember(states, torch.randn(2, 2, 16))
        assert len(states) == len(before) + 1
        assert torch.equal(states[-2], before[-1])
    assert [state.numel() for state in states] == [0, 0, 64, 64]


# Half precision, messages ------------------------------------------------------------------------------------------


def test_stacks_may_differ() -> None:
    model = tiny("dlcl_transformer", norm="post,pre", dlcl_window="1,0", dlcl_weights="dimension,scalar")
    assert (model.encoder.layer_norm, model.decoder.layer_norm is None) == (None, False)
    assert (model.encoder.history.window, model.decoder.history.window) == (1, 3)
    assert [stack.history.weight.size(2) for stack in (model.encoder, model.decoder)] == [16, 1]
    half = tiny("pre_ln_transformer", history="dlcl,last")
    assert not [name for name, _ in half.decoder.named_parameters() if "history" in name]
    assert half.encoder.history.weight.shape == (4, 4, 1)
