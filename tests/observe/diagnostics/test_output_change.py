"""Output change: exact statistics and steps, and the two laws of Admin's figure 4."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics import output_change
from fairseq_plugins.tools.observe.diagnostics.models import NO_DROPOUT, depends_on_depth
from fairseq_plugins.tools.observe.diagnostics.output_change import Change, changes, curve, law, outputs, random_step
from fairseq_plugins.tools.observe.diagnostics.results import AnalysisSettings
from tests.observe.diagnostics.measured import batch, padded, subject, wide

DEPTH_IN_THE_EQUATION = {
    *("admin_torch", "b2t_without_ln", "completep", "deepnet", "deepscale"),
    *("fixup", "keel", "layer_scale", "sub_ln", "t_fixup"),
}
"""Methods whose papers put the number of layers into a scale or into the weights. A new one of this kind is added."""


@given(st.floats(0.1, 10), st.floats(-5, 5))
def test_a_straight_line_is_explained_whole(gradient: float, offset: float) -> None:
    depths = range(1, 30)
    linear, logarithmic = law([Change(n, gradient * n + offset, 0) for n in depths])
    assert linear == pytest.approx(1)
    assert logarithmic < 0.9
    assert law([Change(n, gradient * math.log(n) + offset, 0) for n in depths])[1] == pytest.approx(1)
    assert law([Change(n, 0.0, 0.0) for n in depths]) == [None, None]


def test_depth_counts_where_the_paper_says_so_and_for_an_option_too() -> None:
    found = {method for method in METHODS if depends_on_depth(subject(method))}
    assert found == DEPTH_IN_THE_EQUATION, "DEPTH_IN_THE_EQUATION lists the methods whose papers have the depth in them"
    assert depends_on_depth(subject("b2t", b2t_init_scale="layers"))


def test_the_lower_layers_of_a_deep_encoder_are_a_shallow_one() -> None:
    inputs = padded()
    for method in ("post_ln", "pre_ln", "dlcl", "dlcl_post_ln", "realformer"):
        deep, shallow = (subject(method).build(encoder_layers=n) for n in (4, 2))
        weights = {name: deep.state_dict()[name] for name in shallow.state_dict() if "history" not in name}
        shallow.load_state_dict({**shallow.state_dict(), **weights})
        assert outputs(shallow, inputs)[0].shape == (3 * 6 - 2, 16)  # without pads
        for ours, theirs in zip(outputs(shallow, inputs), outputs(deep, inputs), strict=False):
            assert torch.allclose(ours, theirs, atol=1e-5), method
        top = shallow.encoder(inputs.source, inputs.lengths)["encoder_out"][0]
        expected = layer_norm(top[inputs.words("encoder", 1, top)], (16,))
        assert torch.allclose(expected.double(), outputs(shallow, inputs)[-1], atol=1e-3)


def test_steps_have_the_size_that_they_should() -> None:
    inputs = batch()
    model = subject("post_ln", **NO_DROPOUT).ready(inputs)
    names = set(output_change.matrices(model))
    steps = {name: step(model, inputs, torch.Generator().manual_seed(1)) for name, step in output_change.STEPS.items()}
    for name, size in (("random", output_change.RANDOM_SIZE), ("adam", output_change.ADAM_SIZE)):
        moved = torch.cat([move.flatten().abs() for move in steps[name].values()])
        assert set(steps[name]) == names
        if name == "random":
            signs = torch.cat([move.flatten().sign() for move in steps[name].values()])
            assert abs(float(signs.mean())) < 4 / math.sqrt(len(signs))
        # A unit that no word switches on has no gradient, and Adam leaves it alone.
        assert torch.allclose(moved[moved > 0], torch.tensor(size), rtol=1e-4, atol=0)
        assert float((moved > 0).float().mean()) > 0.8


def test_closed_gates_let_no_change_through() -> None:
    points = curve(subject("rezero"), batch(), "random", deepest=5, models=1)
    assert [(point.depth, point.mean) for point in points] == [(depth, 0.0) for depth in range(1, 6)]
    # Where the depth counts, a model is built for each of some depths.
    points = curve(subject("deepnet"), batch(), "random", deepest=7, models=1)
    assert [point.depth for point in points] == [1, 2, 3, 6, 7]


def test_a_change_is_that_of_two_passes_and_mean_and_deviation_are_over_the_models() -> None:
    values = []
    for seed in (1, 2):
        model = subject("post_ln").ready(batch(), seed, encoder_layers=3, decoder_layers=1, **NO_DROPOUT)
        before = outputs(model, batch())[-1]
        values.append(changes(model, batch(), random_step, seed)[-1])
        assert values[-1] == pytest.approx(float((outputs(model, batch())[-1] - before).square().sum()))
    last = curve(subject("post_ln"), batch(), "random", deepest=3, models=2)[-1]
    assert last.mean == pytest.approx(sum(values) / 2)
    assert last.deviation == pytest.approx(abs(values[0] - values[1]) / 2)
    settings = AnalysisSettings(lambda _: batch(), seed=2)
    (row,) = output_change.run_output_change([subject("post_ln")], settings, "random", deepest=3, models=1).rows
    assert row[4] == values[1]


def test_post_ln_moves_more_than_the_others() -> None:
    inputs = batch(words=300, sentences=2, length=12)
    found = {
        m: curve(subject(m, words=300, **wide(64, 1, base_init="xavier")), inputs, "random", 30, 2)
        for m in ("post_ln", "pre_ln", "admin")
    }
    growth = {method: points[-1].mean / points[0].mean for method, points in found.items()}
    assert growth["post_ln"] > 2 * growth["pre_ln"]
    assert growth["post_ln"] > 2 * growth["admin"]


@pytest.mark.long
@pytest.mark.slow
def test_figure_4() -> None:
    """O(N) for Post-LN, O(log N) for the others; the mean of 8 models, since one of Post-LN is erratic."""
    inputs = batch(words=10_000, sentences=8, length=25)
    sizes = wide(256, 1, base_init="xavier")
    methods = ("post_ln", "pre_ln", "admin")
    found = {m: curve(subject(m, words=10_000, **sizes), inputs, "random", 100, 8) for m in methods}
    assert law(found["post_ln"])[0] >= 0.97
    for method in ("pre_ln", "admin"):
        assert law(found[method])[1] >= 0.97
        assert found["post_ln"][-1].mean > 5 * found[method][-1].mean


def test_a_trained_model_has_no_other_depths() -> None:
    made = subject("post_ln")
    trained = type(made)("trained", made.options, made.task, dict(made.build().state_dict()))
    assert len(curve(trained, batch(), "random", deepest=100, models=1)) == 3
    with pytest.raises(UserError, match="trained is trained; --step adam needs methods"):
        curve(trained, batch(), "adam", deepest=100, models=1)
