"""Admin's profile: measured once, in the first training forward, right in every precision, and kept for good."""

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.core import calibration
from tests import models, toy
from tests.faults.exact import differences

XAVIER = ("--arch", "post_ln_transformer", "--base-init", "xavier")
RESIDUALS = 3 * 2 + 2 * 3  # in the tiny models in memory
UPDATES = ("--max-update", "4", "--no-epoch-checkpoints")


def admin(*flags: str) -> nn.Module:
    return models.build("--arch", "admin_transformer", *flags).train()


def omegas(model: nn.Module) -> dict[str, Tensor]:
    return {name: module.omega_profiled.clone() for name, module in models.residuals(model).items()}


def stored_omegas(state: dict[str, Tensor]) -> dict[str, Tensor]:
    ending = ".omega_profiled"
    return {name.removesuffix(ending): value for name, value in state.items() if name.endswith(ending)}


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    passes: list[dict[str, Tensor]] = []
    calibrate = calibration.calibrate

    def watch(stacks: Any, model: nn.Module, forward: Any) -> None:
        calibrate(stacks, model, forward)
        passes.append(omegas(model))

    monkeypatch.setattr(calibration, "calibrate", watch)
    return passes


def test_the_first_training_forward_profiles_once(profiles: list[dict[str, Tensor]]) -> None:
    model = admin()
    passes: list[int] = []
    model.encoder.register_forward_hook(lambda *_: passes.append(1))
    model.eval()
    with torch.no_grad():
        model(*models.batch().inputs)
    assert profiles == []
    assert all((value == 1).all() for value in omegas(model).values())
    model.train()
    models.loss_of(model, models.batch()).backward()
    assert len(profiles) == 1
    assert len(passes) == 3  # one to evaluate, one to profile, one to train: the profile costs no backward pass
    first = omegas(model)
    models.loss_of(model, models.batch(seed=9)).backward()
    assert len(profiles) == 1
    assert differences(omegas(model), first) == []
    above = [value for name, value in first.items() if not name.endswith("layers.0.self_attn_residual")]
    assert len(above) == RESIDUALS - 2
    assert all((value > 1.05).all() for value in above)


def test_the_random_numbers_of_the_training_are_not_touched() -> None:
    model, plain = admin(), models.build(*XAVIER).train()
    masks: dict[str, Tensor] = {}
    for which, trained in (("admin", model), ("plain", plain)):
        dropout = trained.encoder.layers[2].dropout_module
        dropout.register_forward_hook(lambda _, inputs, output, w=which: masks.update({w: output.eq(0)}))
        torch.manual_seed(11)
        trained(*models.batch().inputs)
        masks[which + " state"] = torch.get_rng_state()
    assert torch.equal(masks["admin state"], masks["plain state"])
    assert torch.equal(masks["admin"], masks["plain"])
    assert 0 < int(masks["admin"].sum()) < masks["admin"].numel()
    for name, value in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_a_failed_profile_is_made_again(profiles: list[dict[str, Tensor]]) -> None:
    """fairseq skips a batch that does not fit into memory and goes on."""
    model = admin()
    full = mock.patch.object(type(model.decoder), "forward", side_effect=RuntimeError("out of memory"))
    with full, pytest.raises(RuntimeError, match="out of memory"):
        model(*models.batch().inputs)
    model(*models.batch().inputs)
    assert len(profiles) == 1
    assert all((value > 1.05).all() for name, value in omegas(model).items() if "layers.1" in name)


def test_a_plain_checkpoint_is_taken_as_it_is(profiles: list[dict[str, Tensor]]) -> None:
    kinds = ((), ("--admin-scale", "scalar"), ("--admin-omega", "frozen"))
    for origin, flags in itertools.product((("--arch", "transformer"), XAVIER), kinds):
        plain, model = models.build(*origin, seed=5).train(), admin(*flags)
        model.load_state_dict(dict(plain.state_dict()), strict=True)
        torch.manual_seed(3)
        expected = plain(*models.batch().inputs)[0]
        torch.manual_seed(3)
        assert torch.equal(model(*models.batch().inputs)[0], expected), (origin, flags)
        assert profiles == []
        assert all((value == 1).all() for value in omegas(model).values())
        assert not calibration.pending(model)


def test_sixty_layers_are_profiled_right_in_half_precision() -> None:
    """The same weights in single precision give the same omegas, up to the rounding of the numbers measured."""
    flags = "--encoder-layers 60 --decoder-layers 12 --encoder-embed-dim 32 --dropout 0".split()
    measured = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        model = admin(*flags).to(dtype)
        with torch.no_grad():
            model(*models.batch().inputs)
        measured[dtype] = omegas(model)
        assert {value.dtype for value in measured[dtype].values()} == {dtype}
    expected = measured[torch.float32]
    assert max(float(value.max()) for value in expected.values()) > 4
    for dtype, precision in ((torch.float16, 2e-2), (torch.bfloat16, 4e-2)):
        for name, value in measured[dtype].items():
            torch.testing.assert_close(value.float(), expected[name], rtol=precision, atol=0, msg=name)


def train(data: Path, directory: Path, *flags: str, arch: str = "admin_transformer") -> Path:
    return toy.train_toy(data, directory, *UPDATES, *flags, arch=arch)


@pytest.mark.parametrize(
    "flags",
    [
        *(toy.PRECISIONS[name] for name in ("single", "fp16", "memory_efficient_fp16")),
        *(pytest.param(toy.PRECISIONS[name], marks=pytest.mark.slow) for name in ("bf16", "memory_efficient_bf16")),
        ("--update-freq", "2"),
    ],
    ids=" ".join,
)
def test_training_keeps_what_was_measured(flags, toy_data, tmp_path, profiles):
    """The half-precision optimizers write their own copies of the parameters back at every step."""
    state = torch.load(train(toy_data, tmp_path, *flags), weights_only=True)
    assert len(profiles) == 1
    assert state["optimizer_history"][-1]["num_updates"] == 4
    stored = stored_omegas(state["model"])
    assert len(stored) == 2 * 2 + 2 * 3
    in_float32 = [{name: value.float() for name, value in found.items()} for found in (stored, profiles[0])]
    assert differences(*in_float32) == []
    assert sum(bool((value > 1.05).all()) for value in stored.values()) == len(stored) - 2
    changed = [value for name, value in state["model"].items() if name.endswith("omega_trained")]
    assert all(float(value.abs().max()) > 0 for value in changed)
