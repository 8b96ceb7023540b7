"""BranchNorm: a factor on the branches that follows the number of updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.method import Site
from fairseq_plugins.errors import UserError
from fairseq_plugins.methods.branch_norm import share
from tests.building import batch, logits, residuals, tiny
from tests.checkpoints.test_fold import assert_same, folded, tiny_model
from tests.methods.by_equation import Branch, SubLayer, assert_is, first_norm, ln
from tests.toy import train_toy

ARCH = "branch_norm_transformer"


@pytest.mark.parametrize("updates", [1, 5])
def test_stacks_are_the_equation(updates: int) -> None:
    """A new model is in its first update, 1 / T."""

    def make(stack: Any) -> tuple[SubLayer, Any]:
        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            return ln(x + branch(x) / updates, first_norm(layer, site))

        return sub_layer, lambda start, x: x

    assert_is(ARCH, make, branch_norm_updates=str(updates))


@pytest.mark.parametrize(("update", "factor"), [(1, 0.00025), (400, 0.1), (3999, 0.99975), (4000, 1.0), (9000, 1.0)])
def test_the_factor_grows_to_one(update: int, factor: float) -> None:
    assert share(update, 4000) == pytest.approx(factor, rel=1e-12)


def test_fairseq_tells_every_branch_the_number_of_updates() -> None:
    model = tiny(ARCH)
    for made, factor in ((0, 1 / 4000), (1, 2 / 4000), (999, 0.25), (3998, 3999 / 4000), (3999, 1.0), (10**6, 1.0)):
        model.set_num_updates(made)
        assert [float(one.grown) for one in residuals(model).values()] == pytest.approx([factor] * 12, rel=1e-6)


def test_at_its_full_size_it_is_post_ln_to_the_bit() -> None:
    model, post_ln = tiny(ARCH, dropout=0.2), tiny("post_ln_transformer", dropout=0.2)
    weights = model.state_dict()
    post_ln.load_state_dict({name: weights[name] for name in post_ln.state_dict()}, strict=True)
    assert not torch.equal(*(logits(one.train(), batch(), seed=5) for one in (model, post_ln)))
    model.set_num_updates(4000)
    for train in (True, False):
        assert torch.equal(*(logits(one.train(train), batch(), seed=5) for one in (model, post_ln)))


def test_a_checkpoint_has_the_factor_of_its_last_update(toy_data: Path, tmp_path: Path) -> None:
    for updates, factor in ((2, 0.5), (3, 0.75), (6, 1.0)):  # the second and third continue
        flags = ("--max-update", str(updates), "--branch-norm-updates", "4", "--no-epoch-checkpoints")
        state = torch.load(train_toy(toy_data, tmp_path, *flags, arch=ARCH), weights_only=True)
        grown = [float(value) for name, value in state["model"].items() if name.endswith(".grown")]
        assert grown
        assert set(grown) == {factor}


def test_it_folds_once_it_has_its_full_size(tmp_path: Path) -> None:
    model, values = tiny_model(ARCH, branch_norm_updates="10")
    with pytest.raises(UserError, match="it does more than scale the stream and add the branch"):
        folded(tmp_path, ARCH, model, values)
    model.set_num_updates(10)
    assert_same(model, folded(tmp_path, ARCH, model, values))


def test_a_growth_of_no_update_is_refused() -> None:
    with pytest.raises(UserError, match="--branch-norm-updates must be at least 1, not 0"):
        tiny(ARCH, branch_norm_updates="0")
