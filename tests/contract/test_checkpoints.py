"""A checkpoint holds the whole model as plain data, and a training that goes on from it goes on exactly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from torch import nn

from fairseq_plugins.core.method import Axis
from tests import models, toy
from tests.faults.exact import differences, state_of
from tests.representatives import for_each, slow_but, stored

every_case = for_each("case", models.CASES, stored, Axis.LAYER_AGGREGATION)
UPDATES, STOP = 3, 1  # two updates are an epoch: the training is stopped in the first and ends in the second
PLAIN = (dict, list, str, int, float, bool, type(None))
Run = tuple[Path, nn.Module]


def run(data: Path, directory: Path, case: str, updates: int) -> Run:
    """Train; returns the last checkpoint and the model as it was in memory when that was written."""
    kept: list[nn.Module] = []
    save_checkpoint = Trainer.save_checkpoint

    def keep(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        kept.append(self.model)
        return save_checkpoint(self, *args, **kwargs)

    flags = [*models.CASES[case][2:], "--batch-size", "60", "--max-tokens", "1000", "--no-epoch-checkpoints"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save_checkpoint", keep)
        path = toy.train_toy(data, directory, "--max-update", str(updates), *flags, arch=models.CASES[case][1])
    return path, kept[-1]


@pytest.fixture(scope="module")
def whole(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    runs: dict[str, Run] = {}

    def find(case: str) -> Run:
        if case not in runs:
            runs[case] = run(toy_data, tmp_path_factory.mktemp(case), case, UPDATES)
        return runs[case]

    return find


def leaves(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [value, *(leaf for one in inside for leaf in leaves(one))]


@every_case
def test_a_checkpoint_is_plain_data_and_gives_the_same_outputs(case: str, whole: Callable[[str], Run]) -> None:
    path, model = whole(case)
    state = torch.load(path, weights_only=True)
    settings = state["cfg"]["model"]
    assert [leaf for leaf in leaves(settings) if type(leaf) not in PLAIN] == []
    assert settings["_name"] == models.CASES[case][1]
    assert state["model"].keys() == model.state_dict().keys()
    (loaded,), _ = checkpoint_utils.load_model_ensemble([str(path)], strict=True)
    model.eval()
    loaded.eval()
    source = torch.randint(4, len(model.encoder.dictionary), (3, 6))
    with torch.no_grad():
        arguments = (source, torch.tensor([6, 6, 6]), source.flip(1))
        assert torch.equal(loaded(*arguments)[0], model(*arguments)[0])


@pytest.mark.parametrize("case", slow_but(("admin", "branch_norm", "dlcl", "sigma_reparam"), models.CASES))
def test_resumed_equals_uninterrupted(case: str, whole: Callable[[str], Run], toy_data: Path, tmp_path: Path) -> None:
    run(toy_data, tmp_path, case, STOP)
    halves, uninterrupted = state_of(run(toy_data, tmp_path, case, UPDATES)[0]), state_of(whole(case)[0])
    assert halves["updates"] == UPDATES
    assert differences(halves, uninterrupted) == []
