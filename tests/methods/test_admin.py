"""Admin: omega against variances that the test measures itself, and against the numbers of the released profile."""

import math
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.methods.admin import AdminResidual
from tests.models import Batch, batch, dictionary, logits, residuals, tiny
from tests.models import full as build

DROPOUTS: dict[str, Any] = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
STACKS = ("encoder", "decoder")


class Listener:
    """The population variances of each residual's branch and stream in every forward, in the order of the residuals."""

    def __init__(self, stack: nn.Module) -> None:
        self.branches: dict[str, list[float]] = defaultdict(list)
        self.streams: dict[str, list[float]] = defaultdict(list)
        for name, residual in residuals(stack).items():
            residual.register_forward_pre_hook(lambda _, inputs, name=name: self.hear(name, *inputs))

    def hear(self, name: str, branch: Tensor, stream: Tensor, layer_input: Tensor) -> None:
        self.branches[name].append(float(branch.detach().double().var(correction=0)))
        self.streams[name].append(float(stream.detach().double().var(correction=0)))


def profiled(**values: Any) -> tuple[nn.Module, dict[str, Listener]]:
    """A model after its first training forward, which is heard twice: in the profiling pass, then with its omegas.

    Both passes draw the same dropout masks, since the first puts the random state back.
    """
    model = tiny("admin_transformer", **{**DROPOUTS, **values}).train()
    listeners = {stack: Listener(getattr(model, stack)) for stack in STACKS}
    logits(model, batch(), seed=5)
    return model, listeners


def omegas(stack: nn.Module) -> list[float]:
    """omega of each residual connection; all its entries are one number."""
    values = []
    for residual in residuals(stack).values():
        scale = residual.stream_scale()
        assert bool((scale == scale[0]).all())
        values.append(float(scale[0]))
    return values


def test_released_rule_and_stored_variances() -> None:
    for values in ({}, {"admin_scale": "scalar"}, {"admin_omega": "frozen"}, {"dropout": 0.4}):
        model, listeners = profiled(**values)
        for stack in STACKS:
            heard, measured, expected = listeners[stack], omegas(getattr(model, stack)), [1.0]
            for omega, (name, residual) in zip(measured, residuals(getattr(model, stack)).items(), strict=True):
                branch = heard.branches[name][1]
                expected.append(math.sqrt(omega**2 * heard.streams[name][1] + branch))
                assert isinstance(residual, AdminResidual)
                assert float(residual.branch_variance) == pytest.approx(branch, rel=1e-5)
                assert float(residual.calibrated) == 1.0
            assert measured == pytest.approx(expected[:-1], rel=1e-5)
            assert len(measured) == 6


def test_paper_rule_of_both_stacks_or_of_one() -> None:
    for profile, stacks in (("paper", STACKS), ("released,paper", ("decoder",))):
        model, listeners = profiled(admin_profile=profile)
        assert omegas(model.encoder)[0] == float(profile == "released,paper")
        for stack in stacks:
            total = 0.0
            heard = listeners[stack].branches.items()
            for omega, (name, variances) in zip(omegas(getattr(model, stack)), heard, strict=True):
                assert omega == pytest.approx(math.sqrt(total), rel=1e-5), name
                total += variances[0]  # measured while every omega was still 1


def test_pads_are_counted() -> None:
    """The released code counts pads: a batch with more of them has another variance."""
    results = []
    for extra in (0, 5):
        model = tiny("admin_transformer", dropout=0.0).train()
        data = batch()
        pads = data.source.new_full((len(data.source), extra), dictionary().pad())
        logits(model, data._replace(source=torch.cat([pads, data.source], dim=1)))
        results.append(omegas(model.encoder)[1])
    assert results[0] > 1.05 * results[1]


# The profile that the authors ship with admin-torch: base size, 100 layers a stack, all dropouts 0.1.
GOLDEN = {"encoder": (1, 1.319, 1.4550, 1.5123, 1.6428, 1.6959), "decoder": (1, 1.3426, 1.4801, 1.6101, 1.6862, 1.8158)}


def text(sentences: int, longest: int, vocabulary: int) -> Batch:
    """Sentences of like lengths whose words follow Zipf's law, as in a batch of a real corpus."""
    draw = torch.Generator().manual_seed(8)
    words = dictionary(vocabulary)
    frequencies = 1 / torch.arange(1, vocabulary - words.nspecial + 1)

    def side() -> Tensor:
        tokens = torch.multinomial(frequencies, sentences * longest, replacement=True, generator=draw)
        return tokens.view(sentences, longest) + words.nspecial

    src, previous = side(), side()
    src[:, -1], previous[:, 0] = words.eos(), words.eos()
    return Batch(src, torch.full((sentences,), longest), previous, target=previous.roll(-1, dims=1))


def test_first_omegas_and_increments_of_the_released_profile() -> None:
    """omega^2 grows by 0.3952 a feed-forward on average: Xavier's 0.32, by 0.9 for each of the two dropouts."""
    torch.manual_seed(1)
    model = build("admin_transformer_12", 4000, 4000, share_all_embeddings=True, **DROPOUTS).train()
    with torch.no_grad():
        logits(model, text(sentences=12, longest=25, vocabulary=4000), seed=5)
    for stack in STACKS:
        names, values = residuals(getattr(model, stack)), omegas(getattr(model, stack))
        assert values[:6] == pytest.approx(GOLDEN[stack], rel=0.05)
        pairs = zip(names, values, values[1:], strict=False)
        growth = [above**2 - below**2 for name, below, above in pairs if name.endswith("ffn_residual")]
        assert len(growth) == 11
        assert sum(growth) / len(growth) == pytest.approx(0.3952, rel=0.05)
