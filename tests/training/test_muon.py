"""Muon for the matrices of layers and Adam for the rest, against PyTorch's own; rates for kinds of parameters.

That a resumed training is the uninterrupted one is in ``tests/faults/test_exact_resume.py``.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.training.fast_adam import Adam
from fairseq_plugins.training.param_groups import MATRIX, mark_and_build, multiply
from tests.models import tiny
from tests.training.optimizing import LR, built


def pair() -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    matrix, table = (nn.Parameter(torch.randn(size, generator=draw)) for size in ((4, 6), (5, 4)))
    matrix.param_group = MATRIX  # type: ignore[attr-defined]
    return [table, matrix]


def test_matrices_follow_pytorch_s_muon_and_the_rest_follows_adam() -> None:
    mine, theirs = pair(), pair()
    optimizer = built("muon", *mine, weight_decay=0.1, muon_adjust="original", muon_lr_scale=2.0)
    apart = (Adam([theirs[0]], lr=LR, weight_decay=0.1), torch.optim.Muon([theirs[1]], lr=2 * LR, weight_decay=0.1))
    draw = torch.Generator().manual_seed(1)
    for rate in (LR, LR / 2, LR / 4):
        optimizer.set_lr(rate)
        assert optimizer.get_lr() == rate
        for p, q in zip(mine, theirs, strict=True):
            p.grad = torch.randn(p.shape, generator=draw)
            q.grad = p.grad.clone()
        optimizer.step()
        for one, factor in zip(apart, (1, 2), strict=True):
            one.param_groups[0]["lr"] = rate * factor
            one.step()
    assert all(map(torch.equal, mine, theirs))


def test_an_orthogonal_gradient_keeps_its_direction() -> None:
    """All n singular values are 1 / sqrt(n) at first; five times s = a s + b s^3 + c s^5 brings them near 1."""
    n, rate = 8, 0.1
    direction = torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(2)))[0]
    matrix = nn.Parameter(torch.zeros(n, n))
    matrix.param_group = MATRIX  # type: ignore[attr-defined]
    optimizer = built("muon", nn.Parameter(torch.zeros(1)), matrix)
    optimizer.set_lr(rate)
    matrix.grad = 7 * direction
    optimizer.step()
    value = 1 / math.sqrt(n)
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    assert 0.6 < value < 1.3
    torch.testing.assert_close(matrix.detach(), -rate * 0.2 * math.sqrt(n) * value * direction, rtol=0, atol=1e-3)


def test_kinds_of_parameters_have_their_own_rates_and_epsilons_after_a_resume_too() -> None:
    table, matrix = pair()
    matrix.optim_overrides = {"factors": {"lr": 0.5, "eps": 0.25}}  # type: ignore[attr-defined]
    values = {"adam_eps": 1e-3, "adam_betas": "(0.9, 0.98)"}
    optimizer = built("adam", matrix, table, **values)
    found = [(group["params"], group["lr"], group["eps"]) for group in optimizer.param_groups]
    assert found[0][0][0] is table
    assert [rest for _, *rest in found] == [[LR, 1e-3], [LR / 2, 0.25e-3]]
    optimizer.set_lr(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.5]
    state = optimizer.state_dict()
    again = built("adam", matrix, table, **{**values, "adam_eps": 1e-4})
    again.load_state_dict(state, again.optimizer_config)
    assert [(group["lr"], group["eps"]) for group in again.param_groups] == [(LR, 1e-4), (LR / 2, 0.25e-4)]


def test_a_resumed_training_takes_the_factors_of_its_own_command_line_and_multiplies_them() -> None:
    table, matrix = pair()
    matrix.optim_overrides = {"factors": {"lr": 0.5}}  # type: ignore[attr-defined]
    state = built("muon", table, matrix, muon_lr_scale=4.0).state_dict()
    again = built("muon", table, matrix, muon_lr_scale=3.0)
    again.load_state_dict(state, again.optimizer_config)
    assert [group["lr"] for group in again.param_groups] == [LR, 1.5 * LR]
    again.set_lr(1.0)
    assert [group["lr"] for group in again.param_groups] == [1.0, 1.5]


def test_a_parameter_that_is_replaced_does_not_lose_its_rate_silently() -> None:
    """A conversion to half precision may do so, and a sharding does."""
    model = tiny("completep_transformer", depth_mup_base="1")
    count = len([*model.encoder.layers.parameters(), *model.decoder.layers.parameters()])
    layer = model.encoder.layers[1]
    layer.fc1.weight = nn.Parameter(layer.fc1.weight.detach().half())
    trainer = SimpleNamespace(model=model, cfg=SimpleNamespace(optimizer=SimpleNamespace(_name="adam")))
    with pytest.raises(UserError, match=f"has replaced 1 of {count} parameters that have a learning rate of their own"):
        mark_and_build(lambda trainer: None, trainer)  # type: ignore[arg-type]


def test_a_pair_of_epsilons_stays_as_adafactor_has_it() -> None:
    group = {"lr": 1.0, "eps": (1e-30, 1e-3)}
    multiply(group, {"lr": 0.5, "eps": 0.25}, group)
    assert group == {"lr": 0.5, "eps": (1e-30, 1e-3), "factors": {"lr": 0.5, "eps": 0.25}}


def test_weights_of_streams_are_no_matrices_of_a_layer() -> None:
    """Some have two dimensions, biases among them; Adam has them all."""
    for arch in ("hyper_connections_transformer", "mhc_transformer"):
        model = tiny(arch)
        settings = SimpleNamespace(optimizer=SimpleNamespace(_name="muon"))
        mark_and_build(lambda trainer: None, SimpleNamespace(model=model, cfg=settings))  # type: ignore[arg-type]
        marked = {name for name, one in model.named_parameters() if getattr(one, "param_group", None) == MATRIX}
        assert {name.rsplit(".", 2)[-2] for name in marked} == {*"fc1 fc2 q_proj k_proj v_proj out_proj".split()}


def test_mistakes() -> None:
    with pytest.raises(UserError, match="finds no matrices of layers: add --fp16-no-flatten-grads"):
        built("muon", nn.Parameter(torch.zeros(9)))
