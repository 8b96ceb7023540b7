"""``--amp`` in bfloat16: float32 weights and residual streams, near float32, and what is refused."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.core.method import Axis
from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.processor import has_bf16
from fairseq_plugins.tools.cli import main as cli
from fairseq_plugins.training import mixed_precision
from tests import models, toy
from tests.representatives import for_each, slow_but

AMP = ("--amp", "--no-epoch-checkpoints", "--max-update")


@for_each("case", models.METHODS, Axis.RESIDUAL, Axis.NORM_POSITION, Axis.ATTENTION, Axis.LAYER_AGGREGATION)
def test_residual_streams_are_in_float32_and_gradients_near_it(case: str) -> None:
    # In so small a model, weights that leave some unit near zero have another gradient once they are rounded.
    model = models.build(*models.CASES[case], "--dropout", "0", seed=2)
    given = models.batch(sentences=8, longest=12)
    kinds: set[torch.dtype] = set()
    for residual in models.residuals(model).values():
        residual.register_forward_hook(lambda module, inputs, output: kinds.add(output.dtype))
    losses, gradients = [], []
    for enabled in (False, True):
        model.zero_grad()
        torch.manual_seed(2)  # word dropout
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = models.loss_of(model, given) / given.target.ne(models.dictionary().pad()).sum()
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert kinds == {torch.float32}
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    assert (gradients[1] - gradients[0]).norm() < 0.05 * gradients[0].norm()


def in_half_precision(*flags: str, keep_casts: bool = True) -> tuple[float, Tensor, set[str]]:
    """Loss, gradient and the names of all operations of one training step under ``--amp``, with dropout."""
    model, given = models.build(*flags), models.batch(sentences=8, longest=12)
    torch.manual_seed(2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        with mixed_precision.half_products("cpu", keep_casts=keep_casts):
            loss = models.loss_of(model, given)
        loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return loss.item(), gradient, {one.key for one in seen.key_averages()}


@pytest.mark.parametrize("case", slow_but(("pcformer",), ("post_ln", "b2t", "pcformer")))
def test_layers_that_are_computed_again_have_the_same_precision(case: str) -> None:
    """Stock layers and this package's: the same numbers go into each sum, whose order may be another.

    PCformer evaluates a layer three times. In bfloat16 autograd adds up what the evaluations give to a matrix, as they
    share its cast; layers that are computed again share none, and the sum is in float32.
    """
    flags = ("--arch", f"{case}_transformer")
    loss, gradient, operations = in_half_precision(*flags)
    if case == "pcformer":
        rounded = gradient
        _, gradient, _ = in_half_precision(*flags, keep_casts=False)
        assert 1e-4 < (rounded - gradient).norm() / gradient.norm() < 1e-3
    again, found, more = in_half_precision(*flags, "--checkpoint-activations")
    assert again == loss
    assert (found - gradient).norm() < 1e-5 * gradient.norm()
    # The fused attention of a CPU, slow in bfloat16, is used neither the first nor the second time.
    assert not [name for name in operations | more if "flash" in name]
    assert any("_scaled_dot_product_attention_math" in name for name in more)


def test_a_gradient_that_is_not_finite_ends_the_training(toy_data, tmp_path, monkeypatch):
    """The end is that of float32: there is no scale that could be lowered."""
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: x * float("inf"))
    with pytest.raises(Diverged):
        toy.train_toy(toy_data, tmp_path, *AMP, "2")


def test_validation_is_in_float32(toy_data: Path, tmp_path: Path) -> None:
    seen: dict[bool, set[bool]] = {True: set(), False: set()}

    def watch(module: Any, inputs: Any) -> None:
        seen[module.training].add(torch.is_autocast_enabled("cpu"))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(watch)
    try:
        toy.train_toy(toy_data, tmp_path, *AMP, "1", validate=True)
    finally:
        handle.remove()
    assert True in seen[True]
    assert seen[False] == {False}


def test_memory_efficient_weights_are_refused(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--amp keeps float32 weights"):
        toy.train_toy(toy_data, tmp_path, *AMP, "1", "--memory-efficient-bf16")


def test_a_cpu_with_instructions_for_bfloat16_is_known_by_its_flags(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    for flags, has in (("avx512f avx512_bf16", True), ("amx_bf16", True), ("avx2 avx512f", False), ("bf16 sve", True)):
        cpuinfo.write_text(f"processor : 0\nflags : fpu {flags}\n", encoding="utf-8")
        assert has_bf16(cpuinfo) is has
    assert has_bf16(tmp_path / "absent") is None


@pytest.mark.parametrize(("flag", "emulated"), [("amp", True), ("bf16", True), ("amp", False)])
def test_the_first_line_says_what_emulation_costs(flag, emulated, tmp_path, monkeypatch, caplog):
    """Before the data is looked for, which are not there."""
    monkeypatch.setattr(mixed_precision, "has_bf16", lambda: not emulated)
    flags = f"--{flag} --arch transformer --cpu --optimizer adam --max-tokens 9"
    with caplog.at_level(logging.INFO):
        assert cli.main(["train", str(tmp_path), *flags.split()]) == 2
    lines = [record.getMessage() for record in caplog.records]
    said = [line for line in lines if not line.startswith("--user-dir=")]  # which the terminal does not show
    wanted = "16 times as long as float32: drop --" if emulated else "transformer"
    assert wanted in said[0]
    assert any(line.startswith(f"--{flag}: this CPU") for line in said) is emulated


@pytest.mark.parametrize("amp", [True, False])
def test_features_of_speech_have_the_type_of_the_weights(amp: bool) -> None:
    """Else the first validation, which has no autocast, would end in a trace."""
    common = SimpleNamespace(amp=amp, bf16=True, fp16=False, cpu=True)
    trainer: Any = SimpleNamespace(cfg=SimpleNamespace(common=common))
    converted = Trainer._fp_convert_sample(trainer, {"net_input": {"src_tokens": torch.ones(2, 3, 80)}})
    assert converted["net_input"]["src_tokens"].dtype == (torch.float32 if amp else torch.bfloat16)
