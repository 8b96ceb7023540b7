"""sigma-Reparam: each matrix over its spectral norm times gamma, followed by power iterations, folded for decoding."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_plugins.checkpoints.fold import fold
from fairseq_plugins.core.linear_maps import affine_form
from fairseq_plugins.methods.sigma_reparam import SpectralLinear
from tests.core.saved import saved_tensors
from tests.models import batch, logits, settings, tiny

ARCH = "sigma_reparam_transformer"
MAPS = 3 * 6 + 2 * 10
"""Three encoder and two decoder layers have four in each attention, two in each feed-forward sub-layer."""


def spectral_maps(model: nn.Module) -> dict[str, SpectralLinear]:
    return {name: one for name, one in model.named_modules() if isinstance(one, SpectralLinear)}


def with_other_gammas(model: nn.Module) -> nn.Module:
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for one in spectral_maps(model).values():
            one.gamma.uniform_(0.5, 2, generator=draw)
            one.bias.uniform_(-0.5, 0.5, generator=draw)
    return model


def drawn(inputs: int, outputs: int, starts_at_norm: bool = False, weight_factor: float = 1.0) -> SpectralLinear:
    one = SpectralLinear(nn.Linear(inputs, outputs), starts_at_norm)
    with torch.no_grad():
        one.weight.mul_(weight_factor)
        one.weight_is_drawn()
    return one


def spectral_norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix.detach(), ord=2))


def test_it_is_a_post_ln_model_of_the_scaled_matrices_and_so_are_its_gradients() -> None:
    """Stock layers with gamma W / |W|_2, the spectral norm and its derivative by torch's singular values."""
    model: Any = with_other_gammas(tiny(ARCH, dropout=0.0).double()).train()
    plain: Any = tiny("post_ln_transformer", dropout=0.0).double().train()
    own = dict(model.named_parameters())
    weights = {name: value for name, value in own.items() if not name.endswith(".gamma")}
    for name in spectral_maps(model):
        weight = weights[f"{name}.weight"]
        weights[f"{name}.weight"] = own[f"{name}.gamma"] * weight / torch.linalg.matrix_norm(weight, ord=2)
    wanted = torch.func.functional_call(plain, weights, batch().inputs)[0]
    found = logits(model, batch())
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)  # the norm is computed in float32
    assert len([name for name in own if name.endswith(".gamma")]) == MAPS
    sides = [torch.autograd.grad(side.square().sum(), list(own.values())) for side in (found, wanted)]
    for name, mine, theirs in zip(own, *sides, strict=True):
        assert (mine - theirs).norm() <= 1e-4 * theirs.norm() + 1e-5, name


def test_first_matrices() -> None:
    for gamma in ("one", "norm"):
        for one in spectral_maps(tiny(ARCH, sigma_gamma=gamma)).values():
            assert spectral_norm(one.matrix()) == pytest.approx(1 if gamma == "one" else one.gamma.item(), rel=1e-5)
            if gamma == "norm":
                torch.testing.assert_close(one.matrix(), one.weight, rtol=1e-5, atol=0)


def test_first_weights_are_normal_of_one_deviation() -> None:
    model = tiny(ARCH, sigma_std=0.3, encoder_embed_dim=64, decoder_embed_dim=64, encoder_ffn_embed_dim=128)
    weights = torch.cat([one.weight.detach().flatten() for one in spectral_maps(model).values()])
    # The deviation of n numbers is known to 1 / sqrt(2 n) of itself; the bound is five times as large.
    assert float(weights.std()) == pytest.approx(0.3, rel=5 / (2 * len(weights)) ** 0.5)


def test_power_iterations_follow_the_weight_in_training_only() -> None:
    torch.manual_seed(1)
    one, x = drawn(12, 20), torch.randn(3, 12)
    with torch.no_grad():
        one.weight.add_(0.3 * torch.randn(20, 12))
    true = spectral_norm(one.weight)
    before = one.u.clone()
    one.eval()(x)
    one.train()
    with torch.no_grad():
        one(x)  # the first pass of layers that are computed again
    assert torch.equal(one.u, before)
    estimates = []
    for _ in range(60):
        one(x)
        # gamma is 1, so the matrix has the norm of the weight over the estimate.
        estimates.append(true / spectral_norm(one.eval().matrix()))
        one.train()
    assert estimates[0] < true * (1 - 1e-4)
    assert all(low <= high * (1 + 1e-5) for low, high in zip(estimates, estimates[1:], strict=False))
    assert estimates[-1] == pytest.approx(true, rel=1e-4)


@torch.no_grad()
def test_folded_and_in_a_search_it_computes_the_same() -> None:
    """A search scales each matrix once, and the scale is far from one."""
    model: Any = with_other_gammas(tiny(ARCH)).eval()
    wanted = logits(model, batch())
    plain: Any = tiny("post_ln_transformer").eval()
    plain.load_state_dict(fold(model, settings(ARCH)).weights)
    torch.testing.assert_close(logits(plain, batch()), wanted, rtol=1e-5, atol=1e-5)
    for one in spectral_maps(model).values():
        form = affine_form(one)
        assert form is not None
        assert form[0].norm() > 2 * one.weight.norm()
    model.make_generation_fast_()
    assert all(one.matrix() is one.weight for one in spectral_maps(model).values())
    torch.testing.assert_close(logits(model, batch()), wanted, rtol=1e-5, atol=1e-6)


def products(one: SpectralLinear, x: Tensor, by_matrix: bool) -> tuple[Tensor, ...]:
    """Output and gradients, of x and of every parameter, by the forward pass or by the matrix in plain torch."""
    x = x.clone().requires_grad_()
    found = F.linear(x, one.matrix(), one.bias) if by_matrix else one(x)
    loss = (found.float() * torch.linspace(-1, 2, found.size(-1))).square().sum()
    return found.float(), *torch.autograd.grad(loss, [x, *one.parameters()])


def test_products_in_bfloat16_learn_as_in_float32() -> None:
    """The norm stays in float32."""
    torch.manual_seed(1)
    one, x = drawn(64, 48, starts_at_norm=True), torch.randn(30, 64)
    wanted = products(one, x, by_matrix=False)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(one.matrix(), one.weight, rtol=1e-5, atol=0)
        assert one(x).dtype == torch.bfloat16
        found = products(one, x, by_matrix=False)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == torch.float32
        assert (mine - theirs).norm() < 0.02 * theirs.norm()


def test_the_scaled_matrix_is_not_kept_for_the_backward_pass() -> None:
    """Only x of two tokens, the two singular vectors and the weight are."""
    one = drawn(64, 64)
    kept = saved_tensors(lambda: one(torch.randn(2, 64)))
    assert sum(tensor.numel() for tensor in kept if tensor is not one.weight) == 4 * 64


def test_a_matrix_that_starts_at_zero_learns() -> None:
    """FixUp's last maps do: the matrix is zero, its gradient is not, and u waits for a weight to follow."""
    for starts_at_norm, (outputs, inputs) in itertools.product((False, True), ((20, 12), (12, 20))):
        one = drawn(inputs, outputs, starts_at_norm, weight_factor=0)
        (one(torch.randn(3, inputs)) - 1).square().sum().backward()
        assert not one.matrix().any()
        assert float(one.u.norm()) == pytest.approx(1, rel=1e-5)
        gradient = one.weight.grad
        assert gradient is not None
        assert bool(gradient.isfinite().all() and gradient.any())
        with torch.no_grad():
            one.weight.sub_(gradient / gradient.norm())
        for _ in range(50):
            one.matrix()
        assert spectral_norm(one.matrix()) == pytest.approx(float(one.gamma), rel=1e-3)
