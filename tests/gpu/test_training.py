"""Trainings on the pretended GPU: near those of the CPU in float32, without waits that stock does not make."""

import copy
import functools
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.core.layers import EncoderLayer
from fairseq_plugins.core.method import METHODS
from fairseq_plugins.errors import Diverged
from fairseq_plugins.patches.messages import run_or_explain
from fairseq_plugins.training import fast_adam, lamb, radam
from tests import models
from tests.gpu.pretend import on_gpu, pretended
from tests.gpu.watching import IN_FLOAT32, Training, of_package, parsed, train, watched
from tests.representatives import slow_but

PER_UPDATE = {"fairseq_plugins/tools/observe/guard/guarding.py _seen": 1}
"""How often this package reads a number in an update: the norm of the gradient, which stock fairseq reads itself right
afterwards."""
PRECISIONS: dict[str, dict[str, bool]] = {
    "--fp16": {"fp16": True},
    "--fp16-no-flatten-grads": {"fp16": True, "fp16_no_flatten_grads": True},
    "--memory-efficient-fp16": {"fp16": True, "memory_efficient_fp16": True},
    "--bf16": {"bf16": True},
    "--amp": {"amp": True},
}
"""The configuration that fairseq makes of its flags."""
RARER: dict[str, dict[str, bool]] = {
    "float32": {},
    "--memory-efficient-bf16": {"bf16": True, "memory_efficient_bf16": True},
    "--amp --bf16": {"amp": True, "bf16": True},
}


@pytest.fixture(scope="module")
def in_float32(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Training]:
    """The same training on the CPU in float32, once for all tests that compare with it."""

    @functools.cache
    def made(method: str, *flags: str, **settings: Any) -> Training:
        return train(toy_data, tmp_path_factory.mktemp("full"), *flags, arch=f"{method}_transformer", **settings)

    return made


@pytest.mark.parametrize("method", slow_but(("admin",), METHODS))
def test_every_method_in_every_precision(method: str, toy_data: Path, tmp_path: Path) -> None:
    assert_near_in_each(PRECISIONS, method, toy_data, tmp_path)


@pytest.mark.slow
def test_rarer_precisions(toy_data: Path, tmp_path: Path) -> None:
    assert_near_in_each(RARER, "admin", toy_data, tmp_path)


def assert_near_in_each(precisions: dict[str, dict[str, bool]], method: str, data: Path, directory: Path) -> None:
    # Word vectors of SmallInit are short, and their gradients long: with 128 the first update is left out. A real GPU
    # draws other words to leave out.
    flags = ("--fp16-init-scale", "8", "--word-dropout", "0")
    config = parsed(data, directory, *flags, arch=f"{method}_transformer")

    def trained(name: str = "float32", **precision: bool) -> Training:
        changed = copy.deepcopy(config)
        changed.common.update(precision)
        changed.checkpoint.save_dir = str(directory / name)
        return watched(changed)

    def on_the_gpu() -> dict[str, Training]:
        return {name: trained(f"gpu {name}", **precision) for name, precision in precisions.items()}

    full = trained()
    for precision, found in on_gpu(on_the_gpu).items():
        assert found.losses == pytest.approx(full.losses, rel=1e-5 if precision == "float32" else 0.02)
        for update in found.updates[1:]:  # the first has waits of Admin's profile
            assert of_package(update.reads) == PER_UPDATE
            assert of_package(update.sends) == {}
        assert {value.dtype for value in found.state["model"].values()} == {torch.float32}
        # FixUp begins with a uniform loss, which is the same in every precision; its weights are not.
        same = all(torch.equal(value, full.state["model"][name]) for name, value in found.state["model"].items())
        assert precision == "float32" or not same
        # Autocast widens every tensor that meets the weights.
        if "--amp" not in precision:
            assert of_package(found.updates[-1].promotions).keys() <= IN_FLOAT32, precision
        # Admin's profile, measured in half precision.
        for name, value in full.state["model"].items():
            if name.endswith("omega_profiled"):
                torch.testing.assert_close(found.state["model"][name], value, rtol=0.02, atol=0, msg=name)


FEATURES = {
    "batches of an update": "--update-freq 2",
    "activation checkpointing": "--checkpoint-activations",
    "layer drop and word dropout": "--encoder-layerdrop 0.01 --word-dropout 0.01",
    "moving average": "--store-ema --ema-fp32 --ema-start-update 1 --ema-decay 0.9",
    "lamb": "--optimizer lamb --fp16-no-flatten-grads",
    "radam": "--optimizer radam",
    "foreach_adam": "--optimizer foreach_adam",
    "fused_adam": "--optimizer fused_adam",
    "muon": "--optimizer muon --fp16-no-flatten-grads",
    "weight decay": "--weight-decay 0.1",
    "chunked loss": "--criterion chunked_label_smoothed_cross_entropy --report-accuracy",
    "loss by sentence": "--criterion label_smoothed_cross_entropy_by_sentence",
    "guard": "--criterion label_smoothed_cross_entropy_with_diagnostics --divergence-action skip",
}


@pytest.mark.parametrize("feature", slow_but(("activation checkpointing", "chunked loss", "guard"), FEATURES))
@pytest.mark.parametrize("precision", slow_but(("--fp16",), ("--fp16", "--bf16", "--amp")))
def test_every_feature(feature, precision, toy_data, tmp_path, in_float32):
    flags = FEATURES[feature].split()
    full = in_float32("admin", *(flag for flag in flags if flag != "--fp16-no-flatten-grads"))
    half = on_gpu(train, toy_data, tmp_path, precision, *flags, arch="admin_transformer")
    assert half.losses == pytest.approx(full.losses, rel=0.02 if precision == "--bf16" else 0.01)
    assert of_package(half.updates[-1].reads) == PER_UPDATE
    assert of_package(half.updates[-1].sends) == {}


@pretended
def test_a_gpu_takes_all_parameters_at_once_in_adam_and_its_kin() -> None:
    """A CPU takes as many as its cache holds: of that branch the pretended GPU sees nothing."""
    for kind in (fast_adam.Adam, fast_adam.FusedAdam, lamb.Lamb, radam.RAdam):
        params = [nn.Parameter(torch.full((3,), float(number), device="cuda")) for number in range(4)]
        optimizer = kind(params, lr=0.1)
        optimizer.chunk_on_cpu = 1
        for param in params:
            param.grad = torch.ones(3, device="cuda")
        optimizer.step()
        (chunk,) = optimizer._arranged
        assert all(state["exp_avg"].is_cuda and state["exp_avg_sq"].is_cuda for state in chunk.states)


@pytest.mark.slow
def test_the_recorder_reads_at_its_interval_alone_and_gathered(toy_data: Path, tmp_path: Path) -> None:
    """Sums, gradients and the scales of the residual connections: as many reads at any depth."""
    flags = ("--criterion", "label_smoothed_cross_entropy_with_diagnostics", "--diagnostics-interval", "2", "--fp16")
    expected = {
        **PER_UPDATE,
        "fairseq_plugins/tools/observe/recorder/recording.py values_of": 1,
        "fairseq_plugins/tools/observe/recorder/gradients.py gradient_norms": 1,
        "fairseq_plugins/tools/observe/recorder/activations.py scales": 1,
    }
    for layers in ("2", "4"):
        found = on_gpu(
            train, toy_data, tmp_path / layers, *flags, "--encoder-layers", layers, arch="admin_transformer", updates=4
        )
        assert of_package(found.updates[2].reads) == PER_UPDATE
        assert of_package(found.updates[3].reads) == expected
        assert of_package(found.updates[3].sends) == {"fairseq_plugins/tools/observe/recorder/activations.py vector": 1}
        assert len((tmp_path / layers / "recorder.jsonl").read_text().splitlines()) == 2


def test_dropout_draws_as_stock_does_on_a_gpu(toy_data: Path, tmp_path: Path) -> None:
    """A CPU keeps a byte a number, a GPU calls torch: the same masks from the same generator."""
    losses = [
        on_gpu(train, toy_data, tmp_path / arch, "--dropout", "0.3", "--fp16", arch=arch).losses
        for arch in ("transformer", "post_ln_transformer")
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "arch", ["admin_transformer_lm", "dlcl_transformer_lm", "admin_s2t_transformer", "sigma_reparam_s2t_transformer"]
)
def test_language_models_and_speech(arch: str) -> None:
    """Loss and gradients of a step in float32 are those of the CPU; float16 runs, and is near."""

    def step(dtype: torch.dtype) -> tuple[float, Tensor]:
        model = models.tiny(arch, dropout=0.0).to(dtype)
        inputs = models.text()[:1] if "_lm" in arch else models.speech().inputs
        if torch.cuda.is_available():
            model, inputs = model.cuda(), tuple(value.cuda() for value in inputs)
        inputs = tuple(value.to(dtype) if value.is_floating_point() else value for value in inputs)
        loss = model(*inputs)[0].float().log_softmax(-1).square().mean()
        loss.backward()
        gradients = [p.grad.float().cpu().flatten() for p in model.parameters() if p.grad is not None]
        return loss.item(), torch.cat(gradients)

    loss, gradient = step(torch.float32)
    for dtype, share in ((torch.float32, 1e-4), (torch.float16, 0.05)):
        found, of_gpu = on_gpu(step, dtype)
        assert found == pytest.approx(loss, rel=share)
        assert (of_gpu - gradient).norm() < share * gradient.norm()


@pytest.mark.slow
def test_sharded_states_need_gradients_that_are_not_flat(toy_data: Path, tmp_path: Path) -> None:
    flags = ("--fp16", "--zero-sharding", "os")
    with pytest.raises(AssertionError, match="UserError: ZeRO is .*Please use --fp16-no-flatten-grads"):
        on_gpu(run_or_explain, train, toy_data, tmp_path, *flags, arch="post_ln_transformer")


def test_the_guard_ends_a_training_and_names_the_place(toy_data: Path, tmp_path: Path) -> None:
    """It repeats the update under hooks, on the GPU."""

    def poisoned() -> str:
        forward, calls = EncoderLayer.forward, itertools.count()

        def poison(layer: Any, *args: Any, **kwargs: Any) -> Any:
            x, *rest = forward(layer, *args, **kwargs)
            return (x * math.nan if layer.depth == 2 and next(calls) >= 2 else x, *rest)

        flags = ("--criterion", "label_smoothed_cross_entropy_with_diagnostics", "--divergence-action", "stop")
        with mock.patch.object(EncoderLayer, "forward", poison), pytest.raises(Diverged) as caught:
            train(toy_data, tmp_path, *flags, arch="post_ln_transformer", updates=5)
        return str(caught.value)

    said = on_gpu(poisoned)
    assert "diverged at update 3: the loss is not a number" in said
    assert "first in encoder.layers.1" in said
