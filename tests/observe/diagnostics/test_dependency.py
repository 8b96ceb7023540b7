"""Residual dependency: each method's closed form, from branches that are recorded; the laws of Admin's figures."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics.dependency import dependency, growth, run_dependency
from fairseq_plugins.tools.observe.diagnostics.observation import Visit, recording
from fairseq_plugins.tools.observe.diagnostics.output_change import changes, outputs, random_step
from fairseq_plugins.tools.observe.diagnostics.results import AnalysisSettings
from tests.observe.diagnostics.measured import batch, padded, subject, wide


def record_of(model: Any, inputs: Any, stack: str) -> tuple[Tensor, list[Visit]]:
    with torch.no_grad(), recording(model.eval()) as record:
        model(*inputs.inputs)
    return record.bottoms[stack], [visit for visit in record.visits if visit.sub.stack == stack]


def shares(parts: list[Tensor]) -> Tensor:
    """Row of beta from summands ``(T, B, C)``."""
    deviations = torch.stack([part.std(dim=-1, unbiased=False).mean() for part in parts])
    return deviations / deviations.norm()


def test_rows_are_shares_for_every_method() -> None:
    inputs = padded()
    offenders = []
    for method in METHODS:
        if METHODS[method].solver != "euler":
            with pytest.raises(UserError, match=r"dependency: the output of encoder\.\S+ is not a weighted"):
                dependency(subject(method).ready(inputs), inputs)
            continue
        for stack, beta in dependency(subject(method).ready(inputs), inputs).items():
            shares = torch.allclose(beta.square().sum(dim=1), torch.ones(len(beta)), atol=1e-5)
            # No branch counts before it is there.
            if not (shares and torch.equal(beta.triu(2), torch.zeros_like(beta))):
                offenders.append((method, stack))
    assert offenders == []


def test_pre_ln_only_adds_up() -> None:
    inputs = batch()
    model = subject("pre_ln").ready(inputs)
    bottom, visits = record_of(model, inputs, "encoder")
    found = dependency(model, inputs)["encoder"]
    for number in range(1, len(visits) + 1):
        expected = shares([bottom, *(visit.branch for visit in visits[:number])])
        assert torch.allclose(found[number - 1, : number + 1], expected, atol=1e-5)


@pytest.mark.parametrize("method", ["post_ln", "admin", "deepnet"])
def test_post_ln_divides_and_scales_by_gain_and_omega(method: str) -> None:
    """The recursion of the paper: times omega, over sigma, times gamma; here on a trained model's uneven gains."""
    inputs = batch()
    model = subject(method).ready(inputs)
    torch.manual_seed(2)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
    bottom, visits = record_of(model, inputs, "decoder")
    parts = [bottom]
    found = dependency(model, inputs)["decoder"]
    for number, visit in enumerate(visits):
        parts = [visit.sub.residual.stream_scale().detach() * part for part in parts] + [visit.branch]
        sigma = (visit.total.var(dim=-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        gain = visit.sub.norm.weight.detach()
        parts = [gain * (part - part.mean(dim=-1, keepdim=True)) / sigma for part in parts]
        assert torch.allclose(found[number, : number + 2], shares(parts), atol=1e-5)


def test_post_ln_is_constant_and_the_others_fall_as_one_by_i() -> None:
    inputs = batch(words=300)
    for method, expected, tolerance in (("post_ln", 0, 0.1), ("admin", 1, 0.3), ("pre_ln", 1, 0.3)):
        model = subject(method, words=300, **wide(64, 18, base_init="xavier")).ready(inputs)
        rise = growth(dependency(model, inputs)["encoder"].diagonal(1).square().tolist())
        assert rise == pytest.approx(expected, abs=tolerance), method


def test_theorem_2_has_one_constant_for_every_depth_and_method() -> None:
    """The output moves by C times the sum of beta_ii squared, which differs by more than ten between these models."""
    inputs, found = batch(words=300), []
    for method, layers in (("post_ln", 1), ("post_ln", 18), ("pre_ln", 3), ("pre_ln", 18), ("admin", 18)):
        made = subject(method, words=300, **wide(64, layers, base_init="xavier", decoder_layers=1))
        encoder, decoder = run_dependency([made], AnalysisSettings(lambda _: inputs)).rows
        model = made.ready(inputs)
        total = float(dependency(model, inputs)["encoder"].diagonal(1).square().sum())
        before, _ = outputs(model, inputs)[-1], changes(model, inputs, random_step, 1)
        moved = float((outputs(model, inputs)[-1] - before).square().mean())
        assert encoder[-2:] == pytest.approx((total, moved / total))
        assert decoder[-1] is None
        found.append((total, encoder[-1]))
    sums, constants = zip(*found, strict=True)
    assert max(sums) > 10 * min(sums)
    assert max(constants) < 2.5 * min(constants)


def test_growth_of_one_by_i_and_of_a_constant() -> None:
    assert growth([0.4 / (1.6 + 0.4 * i) for i in range(1, 9)]) == pytest.approx(1)
    assert growth([0.3] * 8) == pytest.approx(0, abs=1e-12)
    assert growth([0.0] * 8) is None
