"""The columns of the profile of a step: which operation belongs to which, and that none is lost."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from tests.benchmarks.test_run_all import script


@pytest.fixture
def step_profile(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("step_profile", monkeypatch)


def test_an_operation_has_one_column(step_profile: ModuleType) -> None:
    kinds = {
        "aten::addmm": "products",
        "aten::linear": "products",
        "aten::_scaled_dot_product_flash_attention_for_cpu": "attention",
        "aten::native_layer_norm_backward": "norms",
        "aten::native_dropout": "dropout",
        "aten::threshold_backward": "sums and factors",
        "aten::copy_": "copies",
        "aten::_log_softmax_backward_data": "loss",
        "aten::nll_loss_forward": "loss",
        "aten::_fused_adam_": "optimizer",
        "autograd::engine::evaluate_function: AddmmBackward0": "calls",
        "torch::autograd::AccumulateGrad": "calls",
        "aten::t": "calls",
    }
    assert {name: step_profile.kind_of(name) for name in kinds} == kinds


def test_each_column_gets_its_own_time_and_an_optimizer_all_that_it_calls(step_profile: ModuleType) -> None:
    weight = torch.nn.Parameter(torch.ones(64, 64))
    adam = torch.optim.Adam([weight], foreach=True)  # of many operations: products of lists, sums, roots

    def step() -> None:
        (weight @ weight).relu().sum().backward()
        adam.step()

    found = step_profile.kinds_of(step)
    assert found.keys() <= {*step_profile.KINDS, "loss", step_profile.OPTIMIZER, step_profile.REST}
    assert all(found[kind] > 0 for kind in ("products", "sums and factors", step_profile.OPTIMIZER, step_profile.REST))
    assert found["norms"] == found["attention"] == found["loss"] == 0
