"""Promises of every method about its outputs, gradients and weights."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.calibration import Calibrated, pending
from fairseq_plugins.core.method import Axis, Stack
from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.errors import UserError
from tests import models
from tests.faults.exact import differences
from tests.representatives import STRUCTURE, for_each, values_of
from tests.rounding import assert_same_to_rounding

KEEPS_STATES = ("pcformer,euler",)
"""Solvers that read the outputs of all layers below."""
every_structure = for_each("case", models.CASES, *STRUCTURE)
every_start = for_each("case", models.CASES, *Axis)
"""Where the first weights matter as well."""
# Without LayerNorm B2T's beta, the width to the power of -0.2, holds the stream only in wide layers: at width 32 it
# grows to 2e6 over 60 layers in single precision too.
WIDTH_OF_DEEP_MODELS = {"b2t_without_ln": 128, "norm_on_top": 128}
# A connection over all LayerNorms is reported to impair the performance (B2T, footnote 2): the stream grows with every
# layer, and over 60 of them the largest gradient is 1e3 to 5e4 in single precision too, as the rounding falls. The
# paper's deep models of this recipe have 18.
LAYERS_OF_DEEP_MODELS = {"b2t_skip_all": 18}
PAD = models.dictionary().pad()


def gradients(model: DeepTransformerModel) -> dict[str, Tensor]:
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    return {name: p.grad for name, p in model.named_parameters()}


def without_gradient(model: DeepTransformerModel) -> set[str]:
    """Parameters whose gradient is zero; softmax does not change with the bias of its keys, so that is left out."""
    return {name for name, g in gradients(model).items() if not g.any() and not name.endswith("k_proj.bias")}


def closed_branches(model: DeepTransformerModel, data: models.Batch) -> int:
    """Number of places where nothing comes through: a branch whose factor or output map starts at zero, or a map of the
    streams that does."""
    closed: list[bool] = []

    def watch(residual: Residual, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        branch, stream, layer_input = inputs
        closed.append(torch.equal(output, residual.forward(torch.zeros_like(branch), stream, layer_input)))

    handles = [m.register_forward_hook(watch) for m in model.modules() if isinstance(m, Residual)]
    with torch.no_grad():
        model(*data.inputs)
    for handle in handles:
        handle.remove()
    return sum(closed) + sum(name.endswith("_residual.map") and not p.any() for name, p in model.named_parameters())


@every_start
def test_every_parameter_gets_a_gradient(case: str) -> None:
    model = models.build(*models.CASES[case], "--dropout", "0", "--word-dropout", "0")
    model.train()
    data = models.batch(sentences=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    models.loss_of(model, data).backward()
    at_start = without_gradient(model)
    # Parameters behind a closed branch get a gradient once the branch has opened, the encoder last. Nothing else waits.
    assert bool(at_start) == bool(closed_branches(model, data))
    for _ in range(4 if at_start else 0):
        optimizer.step()
        optimizer.zero_grad()
        models.loss_of(model, data).backward()
    assert without_gradient(model) == set()


def test_layers_return_contiguous_tensors() -> None:
    """fairseq's embedding is transposed, and additions keep its strides: linear maps would copy it in every layer."""
    for case, flags in models.CASES.items():
        model = models.build(*flags)
        model(*models.batch().inputs)  # Admin profiles
        layers = [layer for stack in (model.encoder, model.decoder) for layer in stack.layers.children()]
        pieces: list[bool] = []
        for layer in layers:
            layer.register_forward_hook(lambda layer, given, out, pieces=pieces: pieces.append(out[0].is_contiguous()))
        model(*models.batch().inputs)
        assert all(pieces), case
        assert len(pieces) >= len(layers), case


@every_structure
def test_activation_checkpointing_equals_plain(case: str) -> None:
    plain = models.build(*models.CASES[case])
    checkpointed = models.build(*models.CASES[case], "--checkpoint-activations")
    plain, checkpointed = plain.double(), checkpointed.double()  # sums of gradients may be made in another order
    assert plain.state_dict().keys() == checkpointed.state_dict().keys()
    losses = []
    for model in (plain, checkpointed):
        models.perturb(model)
        model.train()
        torch.manual_seed(5)  # dropout is on
        loss = models.loss_of(model, models.batch())
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    expected, found = gradients(plain), gradients(checkpointed)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6, msg=name)


@for_each("case", models.CASES, Axis.ATTENTION, Axis.LAYER_AGGREGATION)
def test_more_padding_changes_nothing(case: str) -> None:
    model = models.trained(case)
    data = models.batch()
    pads = torch.full((data.source.size(0), 3), PAD)
    source, previous = torch.cat([pads, data.source], dim=1), torch.cat([data.previous, pads], dim=1)
    with torch.no_grad():
        expected = model(*data.inputs)[0]
        found = model(source, data.lengths, previous)[0][:, : data.previous.size(1)]
        valid = data.previous.ne(PAD)
        assert_same_to_rounding(found[valid], expected[valid])
        for row, length in enumerate(valid.sum(dim=1).tolist()):
            alone = data.source[row : row + 1, -data.lengths[row] :]
            assert not alone.eq(PAD).any()
            single = model(alone, data.lengths[row : row + 1], data.previous[row : row + 1, :length])[0]
            assert_same_to_rounding(single[0], expected[row, :length])


def test_the_seed_decides_the_weights() -> None:
    """LayerDrop does not: every layer is drawn, also where a forward pass would leave it out."""
    drop = ("--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5")
    for case, flags in models.CASES.items():
        first, other = (models.build(*flags, seed=seed).state_dict() for seed in (1, 2))
        refused = values_of(case)["layer_aggregation"] != "last" or values_of(case)["solver"] in KEEPS_STATES
        assert differences(first, models.build(*flags, *(() if refused else drop)).state_dict()) == [], case
        undrawn = ("history", "solver", "_residual.")
        matrices = [n for n, value in first.items() if value.ndim == 2 and not any(part in n for part in undrawn)]
        drawn = [name for name in matrices if float(first[name].float().std()) > 0]  # some start at zero
        assert drawn, case
        assert [name for name in drawn if torch.equal(first[name], other[name])] == [], case


@every_structure
def test_layer_drop(case: str) -> None:
    """Layers are left out, yet every layer has seen the first batch. A history of them all refuses it."""
    flags = (*models.CASES[case], "--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5")
    config = models.configuration(*models.CASES[case])
    if set(config.layer_aggregation.split(",")) != {"last"} or config.solver in KEEPS_STATES:
        with pytest.raises(UserError, match="needs every layer's output"):
            models.build(*flags)
        return
    model = models.build(*flags)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, left_out = models.batch(), 0
    for step in range(4):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = models.loss_of(model, data)
        assert torch.isfinite(loss)
        loss.backward()
        fc1 = [layer.fc1.weight for stack in (model.encoder, model.decoder) for layer in stack.layers.children()]
        left_out += sum(weight.grad is None for weight in fc1)
        optimizer.step()
    assert 0 < left_out < 4 * 5
    assert not pending(model)
    assert all(float(module.branch_variance) > 0 for module in model.modules() if isinstance(module, Calibrated))


GROWS = {"rezero_alpha_one"}
"""Sums without LayerNorm and without a factor: the paper's own model of 64 layers diverges (ReZero, table 3)."""


@pytest.mark.parametrize("deepest", [6, pytest.param(60, marks=pytest.mark.slow)])
@for_each(
    "case", [c for c in models.CASES if c not in GROWS], (Axis.NORM_POSITION, Axis.RESIDUAL), Axis.INIT, *STRUCTURE[2:]
)
def test_deep_models_stay_finite_in_half_precision(case: str, deepest: int) -> None:
    width, layers = WIDTH_OF_DEEP_MODELS.get(case, 32), min(deepest, LAYERS_OF_DEEP_MODELS.get(case, deepest))
    flags = f"--encoder-layers {layers} --decoder-layers {layers} --encoder-embed-dim {width}"
    model = models.build(*models.CASES[case], *flags.split()).half()
    assert model.decoder.design.layers == layers
    model.train()
    data = models.batch()
    loss = models.loss_of(model, data) / data.target.ne(PAD).sum()
    assert torch.isfinite(loss)
    loss.backward()
    for name, gradient in gradients(model).items():
        assert gradient.dtype == torch.float16, name
        assert torch.isfinite(gradient).all(), name
    model.eval()
    with torch.no_grad():
        logits = model(*data.inputs)[0]
    assert logits.dtype == torch.float16
    assert torch.isfinite(logits).all()


def test_the_cases_are_what_they_say() -> None:
    """The promises would be empty if a flag of a combination were lost."""
    seen = {}
    for case, flags in models.CASES.items():
        model = models.build(*flags)
        designs = [stack.design for stack in (model.encoder, model.decoder)]
        assert [design.stack for design in designs] == list(Stack)
        options = vars(designs[1].options)
        seen[case] = str([[part.name for part in design.parts.values()] for design in designs] + [options])
    assert len(set(seen.values())) == len(seen)
