"""The structures of the axes, each in one short file beside this one; none is named in the core.

Two norms in a sub-layer, a norm inside a branch, a norm that knows its depth, a second stream.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import METHODS, PARTS, Axis, Method
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.weight_decay import parameters_by_kind
from fairseq_plugins.errors import UserError
from tests import building
from tests.rounding import assert_same_to_rounding

HERE = Path(__file__).parent
FILES = sorted((HERE / "toy_methods").glob("*.py"))
PAD = building.dictionary().pad()
WIDTHS = {"(C)": 16, "(F)": 32}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def toy(request: pytest.FixtureRequest) -> Iterator[Method]:
    """The method of a file, registered for one test."""
    with registered(request.param) as method:
        yield method


class registered:
    """The method of a file, and its parts, within a ``with`` statement."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Method:
        self.before = {axis: dict(parts) for axis, parts in PARTS.items()}, dict(METHODS)
        runpy.run_path(str(self.path))
        return METHODS[self.path.stem]

    def __exit__(self, *error: object) -> None:
        parts, methods = self.before
        for axis in Axis:
            PARTS[axis].clear()
            PARTS[axis].update(parts[axis])
        METHODS.clear()
        METHODS.update(methods)


def build(method: Method, **settings: Any) -> nn.Module:
    choices = {axis.value: method.choice(axis) for axis in Axis}
    return building.tiny("deep_transformer", **{**choices, **settings})


def stirred(model: nn.Module) -> nn.Module:
    """Nothing at a special value: every norm has gains and shifts of its own."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def hear(model: nn.Module, kind: type[nn.Module]) -> list[tuple[nn.Module, tuple[Tensor, ...], Tensor]]:
    """Fills itself with what each module of ``kind`` is given and puts out."""
    heard: list[tuple[nn.Module, tuple[Tensor, ...], Tensor]] = []
    for module in model.modules():
        if isinstance(module, kind):
            module.register_forward_hook(lambda *call: heard.append(call))
    return heard


def test_each_file_is_short_and_none_is_named_in_the_core() -> None:
    core = "".join(path.read_text() for path in (HERE.parents[1] / "fairseq_plugins" / "core").glob("*.py"))
    assert len(FILES) == 4
    for path in FILES:
        code = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(code) <= 48
        assert path.stem not in core


def test_the_state_dict_has_what_is_declared(toy: Method) -> None:
    model = build(toy)
    stock = set(build(METHODS["post_ln"]).state_dict()) | set(build(METHODS["pre_ln"]).state_dict())
    declared = {one.name: WIDTHS[one.shape] for axis in Axis for one in PARTS[axis][toy.choice(axis)].parameters}
    new = {name: value for name, value in model.state_dict().items() if name not in stock}
    endings = {name: next((end for end in declared if name.endswith(f".{end}")), "undeclared") for name in new}
    assert set(endings.values()) == set(declared)
    assert all(new[name].shape == (declared[end],) for name, end in endings.items())


def test_every_parameter_gets_a_gradient_and_norms_are_known_as_norms(toy: Method) -> None:
    model = stirred(build(toy)).train()
    building.logits(model, building.batch()).square().mean().backward()
    # Softmax does not change with the bias of its keys.
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert [name for name in silent if not name.endswith("k_proj.bias")] == []
    norms = {id(p) for p in parameters_by_kind(model)["norm"]}
    assert all((id(p) in norms) == ("norm" in name) for name, p in model.named_parameters())


def test_step_by_step_it_computes_the_same(toy: Method) -> None:
    model, data = stirred(build(toy)), building.batch()
    with torch.no_grad():
        full = model(*data)[0]
        encoder_out = model.encoder(data.src_tokens, data.src_lengths)
        cache: dict[str, dict[str, Tensor]] = {}
        for step in range(1, data.prev_output_tokens.size(1) + 1):
            found = model.decoder(data.prev_output_tokens[:, :step], encoder_out, incremental_state=cache)[0]
            valid = data.prev_output_tokens[:, step - 1].ne(PAD)
            assert_same_to_rounding(found[valid, 0], full[valid, step - 1])


def test_activation_checkpointing_changes_nothing(toy: Method) -> None:
    gradients = []
    for flag in (False, True):
        model = build(toy, dropout=0.0, checkpoint_activations=flag).train()
        loss = building.logits(model, building.batch(), seed=2).square().mean()
        loss.backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert_same_to_rounding(*gradients)


# What each computes -----------------------------------------------------------------------------------------------


def test_a_sub_layer_may_have_two_norms() -> None:
    with registered(HERE / "toy_methods" / "two_norms.py") as method:
        model = stirred(build(method))
    x = torch.randn(5, 2, 16)
    first, second = model.encoder.layers[0], model.encoder.layers[1]

    def attend(layer: Any, x: Tensor) -> Tensor:
        normed = layer.self_attn_layer_norm(x)
        return layer.self_attn(normed, normed, normed)[0]

    def feed(layer: Any, x: Tensor) -> Tensor:
        y = layer.fc2(torch.relu(layer.fc1(layer.final_layer_norm(x))))
        return layer.ffn_after_norm(6 * x + y)  # three encoder layers of two sub-layers

    with torch.no_grad():
        torch.testing.assert_close(first(x, None)[0], feed(first, x + attend(first, x)))
        joined = second.self_attn_after_norm(6 * x + attend(second, x))
        torch.testing.assert_close(second(x, None)[0], feed(second, joined))
    assert not hasattr(first, "self_attn_after_norm")


def test_a_norm_inside_is_before_the_last_map_of_each_branch() -> None:
    with registered(HERE / "toy_methods" / "inner_norm.py") as method:
        model = stirred(build(method))
        with pytest.raises(
            UserError, match="in front of out_proj, which with --attention aan and --bias vector is not"
        ):
            build(method, attention="aan")
        with pytest.raises(UserError, match="in front of fc2, which with --attention softmax and --bias fixup is not"):
            build(method, bias="fixup")
    for layer in (*model.encoder.layers, *model.decoder.layers):
        heard = hear(layer, nn.Linear)
        branch = torch.randn(3, 2, 16)
        layer.fc2(hidden := torch.randn(3, 2, 32))
        layer.self_attn(branch, branch, branch)
        (_, _, fed), *_, (_, (context,), out) = heard
        norm, projection = layer.fc2.norm, layer.self_attn.out_proj
        torch.testing.assert_close(fed, norm(hidden) @ layer.fc2.weight.T + layer.fc2.bias)
        torch.testing.assert_close(out, projection.norm(context) @ projection.weight.T + projection.bias)


def test_a_norm_may_know_its_depth() -> None:
    with registered(HERE / "toy_methods" / "norm_by_depth.py") as method:
        model = build(method).eval()
    heard = hear(model.encoder, nn.Linear)
    with torch.no_grad():
        model(*building.batch())
    deviations = [
        float(inputs[0].std(unbiased=False))
        for module, inputs, _ in heard
        if any(module is layer.fc1 for layer in model.encoder.layers)
    ]
    assert deviations == pytest.approx([1.0, 2**-0.5, 3**-0.5], rel=1e-3)


def test_a_second_stream_may_add_the_normalised_sum_of_all_branches() -> None:
    with registered(HERE / "toy_methods" / "second_stream.py") as method:
        model = stirred(build(method))
    for stack in (model.encoder, model.decoder):
        heard = hear(stack, Residual)
        ends: list[Tensor] = []
        stack.layers[-1].register_forward_hook(lambda *call, ends=ends: ends.append(call[2][0]))
        with torch.no_grad():
            encoded = model.encoder(building.batch().src_tokens, building.batch().src_lengths)
            out = encoded["encoder_out"][0]
            if stack is model.decoder:
                out = model.decoder.extract_features(building.batch().prev_output_tokens, encoded)[0].transpose(0, 1)
        start = heard[0][1][1]
        total = start + sum(inputs[0] for _, inputs, _ in heard)
        torch.testing.assert_close(out, ends[-1] + stack.side_stream.norm(total))
