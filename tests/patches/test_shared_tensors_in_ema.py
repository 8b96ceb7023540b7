"""Exponential moving average of tied tensors: once, whatever number of names they have."""

from __future__ import annotations

import inspect

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA
from torch import nn


class Tied(nn.Module):
    """One table under two names, and a bias under one."""

    def __init__(self, value: float, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.table = nn.Linear(2, 3, bias=False)
        self.output = nn.Linear(2, 3)
        self.output.weight = self.table.weight
        for parameter in self.parameters():
            nn.init.constant_(parameter, value)
        self.to(dtype)


def averaged(dtype: torch.dtype, ema_fp32: bool) -> EMA:
    """An average at decay 0.9 that starts at 0 and has made one step towards 1."""
    ema = EMA(Tied(0.0, dtype), EMAConfig(store_ema=True, ema_decay=0.9, ema_fp32=ema_fp32))
    ema.step(Tied(1.0, dtype))
    return ema


@pytest.mark.parametrize(("dtype", "ema_fp32"), [(torch.float32, False), (torch.float32, True), (torch.float16, True)])
def test_every_tensor_moves_a_tenth_of_the_way(dtype: torch.dtype, ema_fp32: bool) -> None:
    ema = averaged(dtype, ema_fp32)
    model = ema.get_model()
    assert model.table.weight is model.output.weight
    for tensor in (model.table.weight, model.output.bias, *ema.fp32_params.values()):
        torch.testing.assert_close(tensor.float(), torch.full_like(tensor, 0.1).float(), atol=1e-4, rtol=0)
    ema.step(Tied(1.0, dtype))
    torch.testing.assert_close(model.table.weight.float(), torch.full((3, 2), 0.19), atol=2e-4, rtol=0)


def test_stock_moves_a_shared_tensor_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EMA, "_step_internal", inspect.unwrap(EMA._step_internal))
    model = averaged(torch.float32, ema_fp32=False).get_model()
    torch.testing.assert_close(model.output.bias, torch.full((3,), 0.1))
    torch.testing.assert_close(model.table.weight, torch.full((3, 2), 0.19))
