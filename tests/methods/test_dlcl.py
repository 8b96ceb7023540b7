"""DLCL: first weights, and memory that grows linearly with depth."""

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.methods.dlcl import initial_weights
from tests.core.saved import saved_tensors
from tests.models import tiny

every_form = pytest.mark.parametrize("arch", ["dlcl_transformer", "dlcl_post_ln_transformer"])


def test_initial_weights() -> None:
    a, b = 1 / 2, 1 / 3
    whole = [[1, 0, 0, 0], [a, a, 0, 0], [b, b, b, 0], [1 / 4] * 4]
    assert torch.equal(initial_weights(4, 4, "average"), torch.tensor(whole))
    of_two = [[1.0, 0, 0, 0], [a, a, 0, 0], [0, a, a, 0], [0, 0, a, a]]
    assert torch.equal(initial_weights(4, 2, "average"), torch.tensor(of_two))
    assert torch.equal(initial_weights(3, 3, "one"), torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 1, 1]]))
    assert torch.equal(initial_weights(3, 1, "one"), torch.eye(3))


def through(history: nn.Module, layers: int, x: Tensor) -> Tensor:
    """The loop of a stack over layers that save one state each, their output."""
    states = [x]
    for _ in range(layers):
        states = history.remember(states, torch.tanh(history(states)))
    return history(states)


def bytes_of_history(arch: str, layers: int, weights: str) -> int:
    """Bytes of all storages that autograd keeps for the backward pass, each once, without parameters."""
    history = tiny(arch, encoder_layers=layers, dlcl_weights=weights).encoder.history
    own = {parameter.untyped_storage().data_ptr() for parameter in history.parameters()}
    storages = [one.untyped_storage() for one in saved_tensors(lambda: through(history, layers, torch.randn(7, 3, 16)))]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(size for address, size in sizes.items() if address not in own)


@every_form
@pytest.mark.parametrize("weights", ["scalar", "dimension"])
def test_memory_of_a_history_is_linear_in_its_depth(arch: str, weights: str) -> None:
    state = 7 * 3 * 16 * 4
    eight, sixteen, twenty_four = (bytes_of_history(arch, layers, weights) for layers in (8, 16, 24))
    assert sixteen - eight == twenty_four - sixteen
    # Two states a layer, y_k and what is normalised, and a mean and a deviation for each position.
    assert sixteen - eight == 8 * (2 * state + 2 * 7 * 3 * 4)


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
