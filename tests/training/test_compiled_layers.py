"""``--compile-layers``: the numbers of eager layers to rounding, the same code at every depth, and only in training."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.core.recorded import Inputs
from fairseq_plugins.training import compiled_layers
from fairseq_plugins.training.compiled_layers import CompiledLayers
from tests import models, toy
from tests.recorded.compiled import build, compiled, recorded, row, update
from tests.representatives import slow_but
from tests.rounding import assert_same_to_rounding


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("method", slow_but((), METHODS))
def test_no_code_depends_on_the_depth(method: str) -> None:
    _, shallow, deep = row(method).split("\t")
    assert shallow == deep
    assert "\t".join([method, shallow, deep]) == recorded()[method]


@pytest.mark.parametrize("method", slow_but((), METHODS))
def test_loss_and_gradients_of_every_method(method: str) -> None:
    """Forward and backward pass of compiled code, dropout included."""
    seen = compiled(build(method, 2), "aot_eager")
    for found, expected in zip(seen.numbers, update(build(method, 2)), strict=True):
        assert_same_to_rounding(found, expected, share=2e-5)


def test_layers_of_other_constants_share_their_code() -> None:
    """Compiled inside of what keeps the memory of a recorded CUDA graph, too."""
    with Inputs():
        seen = compiled(build("layernorm_scaling", 2))
    assert seen.pieces == 3
    for found, expected in zip(seen.numbers, update(build("layernorm_scaling", 2)), strict=True):
        assert_same_to_rounding(found, expected)


def decode(model: Any) -> Any:
    data = models.batch()
    return model.decoder(data.previous, model.encoder(data.source, data.lengths), incremental_state={})


def without_gradients(model: nn.Module) -> Any:
    with torch.no_grad():
        return model(*models.batch().inputs)


def evaluate(model: nn.Module) -> Any:
    return model.eval()(*models.batch().inputs)


def hooked(model: Any) -> Any:
    model.encoder.layers[1].fc1.register_forward_hook(lambda *_: None)
    return model(*models.batch().inputs)


@pytest.mark.parametrize("call", [without_gradients, evaluate, hooked])
def test_only_a_training_is_compiled(call: Callable[[nn.Module], Any]) -> None:
    model = build("admin", 2)
    CompiledLayers(model)
    call(model)
    assert _debug_get_cache_entry_list(compiled_layers.run) == []


def test_a_decoding_cache_is_never_compiled() -> None:
    model = build("dsinit_matt", 2)
    CompiledLayers(model)
    for layer in model.encoder.layers:
        del layer._compiled_call_impl
    decode(model)
    assert _debug_get_cache_entry_list(compiled_layers.run) == []


def test_copies_and_checkpoints_are_those_of_the_model() -> None:
    model = build("admin", 2)
    names = list(model.state_dict())
    CompiledLayers(model)
    assert list(model.state_dict()) == names
    other = copy.deepcopy(model)
    assert all(layer._compiled_call_impl is None for layer in compiled_layers.layers_of(other))
    torch.testing.assert_close(evaluate(other)[0], evaluate(model)[0], rtol=0, atol=0)


def test_without_a_compiler_the_layers_stay_eager(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("Failed to find C compiler")

    expected = update(build("post_ln", 2))
    seen = compiled(build("post_ln", 2), broken)
    assert [torch.equal(*pair) for pair in zip(seen.numbers, expected, strict=True)] == [True] * len(expected)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert lines == [
        f"--compile-layers: each {kind} stays eager: backend='broken' raised: RuntimeError: Failed to find C compiler"
        for kind in ("EncoderLayer", "DecoderLayer")
    ]


REFUSALS = {
    "": "there is no GPU, and on a CPU an update would take 1.4 times as long",
    "--checkpoint-activations": "--checkpoint-activations",
    "--arch transformer": "--arch transformer has no layers of this package",
}


@pytest.mark.parametrize("flags", REFUSALS)
def test_what_has_no_effect(flags: str, toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = ("--compile-layers", "--max-tokens", "300", "--max-update", "1", *flags.split())
    with mock.patch.object(compiled_layers, "BACKEND", "aot_eager"):
        toy.run_training(toy.parse_training(toy_data, tmp_path, *given, arch="pre_ln_transformer"))
    lines = [line.getMessage() for line in caplog.records if "--compile-layers" in line.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("--compile-layers has no effect: ")
    assert REFUSALS[flags] in lines[0]
