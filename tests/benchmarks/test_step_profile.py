"""The columns of the profile of a step: which operation belongs to which, and that none is lost."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from tests.benchmarks.test_run_all import script


@pytest.fixture
def kinds_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("kinds", monkeypatch)


def test_an_operation_has_one_column(kinds_module: ModuleType) -> None:
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
    assert {name: kinds_module.kind_of(name) for name in kinds} == kinds


def test_each_column_gets_its_own_time_and_an_optimizer_all_that_it_calls(kinds_module: ModuleType) -> None:
    weight = torch.nn.Parameter(torch.ones(64, 64))
    adam = torch.optim.Adam([weight], foreach=True)  # of many operations: products of lists, sums, roots

    def step() -> None:
        (weight @ weight).relu().sum().backward()
        adam.step()

    found = kinds_module.kinds_of(step)
    assert found.keys() <= {*kinds_module.KINDS, "loss", kinds_module.OPTIMIZER, kinds_module.REST}
    assert all(found[kind] > 0 for kind in ("products", "sums and factors", kinds_module.OPTIMIZER, kinds_module.REST))
    assert found["norms"] == found["attention"] == found["loss"] == 0
