"""Similarity, scales and updates: closed cases of each."""

from dataclasses import replace

import pytest
import torch

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.results import AnalysisSettings
from fairseq_plugins.tools.observe.diagnostics.scales import mixtures, numbers, run_scales, scales
from fairseq_plugins.tools.observe.diagnostics.similarity import cosines
from fairseq_plugins.tools.observe.diagnostics.timeline import run_timeline
from fairseq_plugins.tools.observe.diagnostics.updates import pairs, run_updates, updates
from fairseq_plugins.tools.observe.recorder import Entry
from fairseq_plugins.tools.observe.recorder.activations import scales as recorded_scales
from tests.observe.diagnostics.measured import batch, subject

SETTINGS = AnalysisSettings(lambda _: batch())


def test_cosines_of_known_angles() -> None:
    first, turned = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 3.0], [1.0, 1.0]])
    found = cosines(torch.stack([first, turned, -first]))
    half = (0 + 2**-0.5) / 2
    expected = torch.tensor([[1, half, -1], [half, 1, -half], [-1, -half, 1]]).double()
    assert torch.allclose(found, expected)


def test_branch_and_stream_of_the_plain_sum_weigh_one() -> None:
    plain = [name for name, method in METHODS.items() if method.residual == "plain"]
    assert len(plain) > 20
    found = {name: {scale[3:] for scale in scales(subject(name).build())} for name in plain}
    assert found == dict.fromkeys(plain, {(1.0, 1.0, 1.0, 1.0, 0.0, 1.0)})


def test_omega_is_the_weight_of_the_stream() -> None:
    model = subject("admin").ready(batch())
    with torch.no_grad():
        model.encoder.layers[2].ffn_residual.omega_trained.copy_(torch.linspace(-0.5, 0.5, 16))
    found = scales(model)
    omega = model.encoder.layers[2].ffn_residual.stream_scale().detach()
    assert found[5][4:7] == pytest.approx((float(omega.mean()), float(omega.min()), float(omega.max())))
    assert found[0].stream == 1.0
    assert found[1].stream > 1.0


def test_dead_gates_are_named() -> None:
    made = subject("rezero")
    model = made.build()
    with torch.no_grad():
        for depth, alpha in enumerate((0.5, -0.3, 0.009), start=1):
            model.encoder.layers[depth - 1].ffn_residual.alpha.fill_(alpha)
        for layer in model.decoder.layers:
            layer.ffn_residual.alpha.fill_(-0.02)
    found = scales(model)
    assert [round(one.branch, 3) for one in found[:6]] == [0.5, 0.5, -0.3, -0.3, 0.009, 0.009]
    trained = Subject("trained", made.options, made.task, dict(model.state_dict()))
    assert run_scales([trained], SETTINGS).notes == [
        "trained: 2 of 12 gates dead (branch weighted by less than 0.01): "
        "encoder.layers.2.self_attn, encoder.layers.2.ffn"
    ]


def test_gates_of_both_signs_are_not_dead() -> None:
    made = subject("layer_scale")
    model = made.build()
    with torch.no_grad():
        for number, sub in enumerate(sub_layers(model)):
            sub.residual.alpha.copy_(torch.tensor([0.5, -0.5] * 8) if number else torch.full((16,), -0.009))
    assert [round(one.branch_size, 3) for one in scales(model)[:2]] == [0.009, 0.5]
    trained = Subject("trained", made.options, made.task, dict(model.state_dict()))
    (note,) = run_scales([trained], SETTINGS).notes
    assert note.startswith("trained: 1 of 12 gates dead")
    last = Entry(1, True, recorded_scales(sub_layers(model)))
    (note,) = run_timeline({"trained": [last]}, SETTINGS).notes
    assert note.startswith("trained: 1 of 12 gates dead at update 1")


def test_the_layers_input_has_its_own_weight() -> None:
    plain, skipping = subject("b2t").build(), subject("b2t_skip_all").build()
    assert [one.layer_input for one in scales(plain)[:2]] == [0.0, 1.0]
    assert [one.layer_input for one in scales(skipping)[:2]] == [0.0, 1.0]
    bare = scales(subject("b2t_without_ln", encoder_layers=12).build())[1]
    # Appendix D: alpha = min(N / 12, N^-0.15), beta = d^-0.2.
    assert bare.layer_input == pytest.approx(12**-0.15)
    assert bare.branch == bare.stream == pytest.approx(16**-0.2)


def test_histories() -> None:
    average = [[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3] * 3 + [0], [1 / 4] * 4]
    window = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]
    for method, settings, expected in (
        ("dlcl", {}, average),
        ("dlcl_post_ln", {}, average),
        ("dlcl", {"dlcl_window": "2", "dlcl_weights": "dimension"}, window),
    ):
        made = subject(method, **settings)
        model = made.build()
        assert torch.allclose(mixtures(model)["encoder"], torch.tensor(expected)), method
    table = run_scales([made], SETTINGS).tables["-history"]
    assert table[6] == ("dlcl", "encoder", 1, 1, pytest.approx(0.5))
    assert mixtures(subject("post_ln").build()) == {}


def test_other_trained_numbers() -> None:
    made = subject("value_residual", value_residual_mix="trained")
    model = made.build()
    with torch.no_grad():
        model.decoder.layers[1].encoder_attn.v_proj.mixing.factors.copy_(torch.tensor([0.75, -0.25]))
    trained = Subject("trained", made.options, made.task, dict(model.state_dict()))
    header, *found = run_scales([trained], SETTINGS).tables["-others"]
    assert header == ("model", "parameter", "number", "value")
    name = "decoder.layers.1.encoder_attn.v_proj.mixing.factors"
    assert found[-2:] == [("trained", name, 0, 0.75), ("trained", name, 1, -0.25)]
    assert len(found) == 2 * (2 + 1 + 1)
    assert {len(numbers(subject(method).build())) for method in ("post_ln", "rezero", "dlcl", "admin")} == {0}
    assert len(numbers(subject("hyper_connections").build())) == 12 * (4 + 16 + 4 + 2)


def test_updates_are_the_way_between_two_models() -> None:
    first, second = (subject("post_ln").build() for _ in range(2))
    with torch.no_grad():
        second.encoder.layers[0].fc1.weight.mul_(1.5)
        second.decoder.layers[1].fc2.weight.mul_(0.9)
    found = {(m.stack, m.layer, m.kind): m for m in updates(first, batch(), second)}
    up, down = found["encoder", 0, "fc1"], found["decoder", 1, "fc2"]
    weights = first.encoder.layers[0].fc1.weight, first.decoder.layers[1].fc2.weight
    raised, lowered = (float(weight.detach().norm()) for weight in weights)
    assert (up.update_to_weight, up.relative_update) == (pytest.approx(0.5), 1.0)
    assert down.update == pytest.approx(0.1 * lowered, rel=1e-4)
    assert down.relative_update == pytest.approx(0.1 * lowered / (0.5 * raised), rel=1e-4)
    assert sum(one.update == 0.0 for one in found.values()) == len(found) - 2
    assert max(one.relative_gradient for one in found.values()) == 1.0


def test_updates_need_a_later_model_of_the_same_shapes() -> None:
    made = subject("post_ln")
    rows = updates(made.build(), batch())
    assert {(row.update, row.relative_update, row.update_to_weight) for row in rows} == {(None, None, None)}
    assert len(rows) == 3 * 6 + 2 * 10
    with pytest.raises(UserError, match="the two checkpoints are of different models"):
        updates(subject("post_ln").build(), batch(), subject("post_ln", encoder_layers=2).build())
    one = Subject("trained", made.options, made.task, made.build().state_dict(), 2)
    for subjects, notes in (([made], 1), ([one], 1), ([one, replace(one, updates=6)], 0)):
        assert len(run_updates(subjects, SETTINGS).notes) == notes


def test_checkpoints_pair_up_by_age() -> None:
    made = subject("post_ln")
    weights = dict(made.build().state_dict())
    ages = {"old": 10, "new": 20, "newest": 30}
    old, new, newest = (Subject(name, made.options, made.task, weights, age) for name, age in ages.items())
    found = [(a.label, b and b.label) for a, b in pairs([newest, made, old, new])]
    assert found == [("post_ln", None), ("old", "new"), ("new", "newest")]
    assert [(a.label, b) for a, b in pairs([old])] == [("old", None)]
