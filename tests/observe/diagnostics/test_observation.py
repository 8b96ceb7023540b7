"""Hooks see every sub-layer of every method as it runs, change nothing, and are gone afterwards."""

import pytest
import torch

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.tools.observe.diagnostics.observation import finished, recording
from tests.observe.diagnostics.measured import padded, subject


def test_every_sub_layer_is_seen_in_order_and_nothing_is_changed(subtests: pytest.Subtests) -> None:
    for method in METHODS:
        with subtests.test(method):
            check_what_is_seen(method)


def check_what_is_seen(method: str) -> None:
    inputs = padded()
    model = subject(method).ready(inputs)
    with torch.no_grad():
        expected = model(*inputs.inputs)[0]
        with recording(model) as record:
            watched = model(*inputs.inputs)[0]
    assert torch.equal(watched, expected)
    assert [visit.sub.name for visit in record.visits] == [sub.name for sub in sub_layers(model)]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    # The top layer's result becomes the output of the stack.
    if METHODS[method].layer_aggregation == "last":
        with torch.no_grad():
            features = model(*inputs.inputs, features_only=True)[0].transpose(0, 1)
            outputs = model.encoder(*inputs.inputs[:2])["encoder_out"][0], features
            for (name, stack), output in zip(model.stacks(), outputs, strict=True):
                top = finished(stack, *record.layer_outputs[name, len(stack.layers) - 1])
                assert torch.equal(top if stack.layer_norm is None else stack.layer_norm(top), output)
    last_of_layers = {visit.sub.layer: visit.sub for visit in record.visits}.values()
    with torch.no_grad():
        for visit in record.visits:
            sub = visit.sub
            assert torch.equal(visit.total, sub.residual(visit.branch, visit.stream, visit.layer_input))
            last = [*sub.norms][-1] if sub.norms else None  # the last of several norms is recorded
            # Behind the residual connection stand a norm, then the residual connection's own last operation.
            if last is NormPlace.AFTER:
                assert visit.norm_input is visit.total
                expected = sub.residual.after_norm(sub.norm(visit.total), visit.layer_input)
                assert torch.equal(visit.output, expected)
            # A solver adds up what its evaluations of a layer have ended in.
            elif METHODS[method].solver == "euler" or sub.stack == "decoder" or sub not in last_of_layers:
                assert torch.equal(visit.output, visit.total)
            if last is NormPlace.BEFORE and type(sub.residual).pre is Residual.pre:
                assert visit.norm_input is visit.stream
            if last is NormPlace.BRANCH:
                assert visit.norm_output is visit.branch


def test_layers_that_training_may_skip_or_run_again_are_run_once() -> None:
    inputs = padded()
    changed = subject("post_ln", encoder_layerdrop=0.9, decoder_layerdrop=0.9, checkpoint_activations=True)
    model = changed.build().train()
    with recording(model) as record:
        model(*inputs.inputs)[0].sum().backward()
    assert len(record.visits) == 3 * 2 + 2 * 3
