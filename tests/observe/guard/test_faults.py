"""A fault that is put into a training is found in the update in which it shows, and named where it was put."""

import math

import pytest
import torch
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged
from fairseq_plugins.tools.observe.recorder import read
from tests.observe.guard.conftest import Faults, Said, Training, places
from tests.observe.recording import overflow_on_a_cpu

STOP = ("--divergence-action", "stop")
INF, NAN = math.inf, math.nan
EOS = 2 * 16 + 1
"""Index of a number in the vector of the token that every sentence has."""


WEIGHTS = {
    "post_ln_transformer": {
        "encoder.layers.0.self_attn.v_proj.weight": (INF, "encoder.layers.0.self_attn"),
        "decoder.layers.1.encoder_attn.out_proj.bias": (INF, "decoder.layers.1.encoder_attn"),
        "decoder.layers.1.fc2.weight": (NAN, "decoder.layers.1.ffn"),
    },
    "pre_ln_transformer": {
        "encoder.layers.1.self_attn_layer_norm.weight": (INF, "encoder.layers.1.self_attn"),
        "decoder.layers.1.encoder_attn.k_proj.weight": (INF, "decoder.layers.1.encoder_attn"),
        "encoder.layer_norm.bias": (NAN, "encoder.layer_norm"),
    },
    "admin_transformer": {
        "encoder.layers.1.ffn_residual.omega_trained": (INF, "encoder.layers.1.ffn"),
        "decoder.output_projection.weight": (INF, "decoder.output_projection"),
        "decoder.embed_tokens.weight": (INF, "decoder.embed_tokens"),
    },
    # One alpha for all sub-layers of a layer: the first of them is where it shows.
    "rezero_transformer": {"decoder.layers.0.self_attn_residual.alpha": (INF, "decoder.layers.0.self_attn")},
    # No self-attention in the decoder: it is merged into the cross-attention.
    "dsinit_matt_transformer": {"decoder.layers.1.encoder_attn.v_proj.weight": (INF, "decoder.layers.1.encoder_attn")},
    # A fairseq model without residual connections.
    "transformer": {
        "encoder.layers.1.fc1.weight": (NAN, "encoder.layers.1.ffn"),
        "decoder.layers.1.encoder_attn.v_proj.weight": (INF, "decoder.layers.1.encoder_attn"),
    },
}
"""One number of each of these weights is made infinite, or no number, and this is the place where that must show."""


@pytest.mark.parametrize("arch", WEIGHTS)
def test_a_weight(training: Training, faults: Faults, said: Said, arch: str) -> None:
    planned = WEIGHTS[arch]
    for number, (path, (value, _)) in enumerate(planned.items(), start=1):
        faults.weight(2 * number, path, value, index=EOS if "embed_tokens" in path else -1)
    training.run("run", "--divergence-action", "skip", arch=arch, updates=len(planned) + 1)
    assert places(said()) == [place for _, place in planned.values()]


def test_a_gradient(training: Training, faults: Faults) -> None:
    """The forward pass is clean: what is not finite arises below the output of the second decoder layer's attention."""

    def fault(trainer: Trainer) -> None:
        module = trainer.get_model().decoder.layers[1].encoder_attn_residual
        module.register_forward_hook(lambda _, inputs, total: total.register_hook(lambda grad: grad * INF) and None)

    faults.before[2] = fault
    line = r"the gradient norm is not a number; learning rate \S+; first in decoder.layers.1.encoder_attn"
    with pytest.raises(Diverged, match=line):
        training.run("run", *STOP, "--diagnostics-interval", "100")
    (entry,) = read(training.directory / "run" / "recorder.jsonl")
    assert (entry.update, entry.applied) == (2, False)
    bad = [name for name, value in entry.values.items() if not math.isfinite(value)]
    assert "decoder.layers.0.ffn/gradient_norm" in bad
    assert "decoder.layers.1.ffn/gradient_norm" not in bad


def test_a_loss_scale_looked_for_is_no_fault(training: Training, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    overflow_on_a_cpu(monkeypatch)
    run = training.run("run", "--fp16", "--memory-efficient-fp16", "--fp16-init-scale", str(2**26), *STOP)
    assert [entry.applied for entry in read(run / "recorder.jsonl")].count(False) > 3
    assert said() == []


def test_a_batch_without_memory_is_left_out_as_fairseq_does(training: Training, faults: Faults, said: Said) -> None:
    """It breaks off in the forward pass of an update that is recorded, its first batch has been seen already."""
    seen: list[int] = []

    def loss(call: int, value: torch.Tensor) -> torch.Tensor:
        seen.append(call)
        if call == 3 and seen.count(3) == 2:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return value

    faults.loss = loss
    flags = ("--divergence-action", "skip", "--update-freq", "2")
    run = training.run("run", *flags, updates=4)
    assert seen.count(3) == 2
    faults.loss, faults.left_out = lambda call, value: value, {3}
    without = training.run("without", *flags, updates=4)
    assert read(run / "recorder.jsonl") == read(without / "recorder.jsonl")
    assert [entry.update for entry in read(run / "recorder.jsonl")] == [1, 2, 3, 4]
    assert said() == []
    for trainer in faults.trainers:
        assert not any(one._forward_hooks for one in trainer.get_model().modules())
