"""Parameters that are not decayed: which ones, with which optimizers, in which precisions, across checkpoints."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.optim import FP16Optimizer
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from fairseq_plugins.core.method import METHODS, Axis
from fairseq_plugins.core.weight_decay import parameters_by_kind
from fairseq_plugins.errors import UserError
from tests import models, toy
from tests.config.test_hydra import TINY, recipe, run_hydra
from tests.refusals import problems_of

LR, DECAY = 0.1, 0.5
# Norms and residual connections with parameters that are not zero at the start.
REZERO = ("--residual", "rezero", "--norm", "post", "--rezero-alpha", "0.5")
EXCLUDED = ("--no-weight-decay-on", "norm,residual,bias")


def names(model: nn.Module, parameters: list[nn.Parameter]) -> set[str]:
    found = {parameter: name for name, parameter in model.named_parameters()}
    return {found[parameter] for parameter in parameters}


def test_every_parameter_is_of_the_kind_that_its_place_says() -> None:
    for case in METHODS:
        assert_kinds(models.build(*models.CASES[case], "--decoder-learned-pos"))


def assert_kinds(model: nn.Module) -> None:
    kinds = {kind: names(model, parameters) for kind, parameters in parameters_by_kind(model).items()}
    assert sum(len(one) for one in kinds.values()) == len(set.union(*kinds.values()))
    rest = {name for name, _ in model.named_parameters()} - set.union(*kinds.values())
    layer_norms = set()  # whatever part declares them
    for name, module in model.named_modules():
        own = {f"{name}.{one}" for one, _ in module.named_parameters(recurse=False)}
        if isinstance(module, nn.LayerNorm):
            layer_norms |= own
            assert own <= kinds["norm"]
        elif isinstance(module, nn.Linear):
            assert f"{name}.weight" in rest | kinds["embedding"]
            assert own - {f"{name}.weight"} <= kinds["bias"] | kinds["weight_form"]
        elif isinstance(module, nn.Embedding):
            assert own <= kinds["embedding"]
    for stack in ("encoder", "decoder"):
        for axis in (Axis.NORM, Axis.RESIDUAL, Axis.HISTORY, Axis.BIAS, Axis.WEIGHT_FORM):
            for added in getattr(model, stack).design.parts[axis].parameters:
                declared = {name for name in set.union(rest, *kinds.values()) if name.endswith(f".{added.name}")}
                assert {name for name in declared if name.startswith(stack)} <= kinds[axis.value] | layer_norms


def test_misspelt_kinds_and_those_that_the_model_has_not_are_refused_together() -> None:
    absent = "has no effect here: this model has no such parameters; it has norm, bias, embedding"
    for kinds, problems in (
        ("norms,residual,hist", ["'norms' (did you mean 'norm'?)", "'hist' (did you mean 'history'?)"]),
        ("norm,residual,history", [f"residual {absent}", f"history {absent}"]),
    ):
        lines = problems_of(models.build, "--arch", "pre_ln_transformer", "--no-weight-decay-on", kinds)
        told = [line.partition("--no-weight-decay-on ")[2] for line in lines]
        assert [problem.partition("; legal")[0] for problem in told] == problems


# Trainings whose gradients are zero: what is left is the decay.


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Parameters before the first update of a training without gradients."""
    forward, train_step = LabelSmoothedCrossEntropyCriterion.forward, TranslationTask.train_step
    seen: dict[str, Tensor] = {}

    def without_gradient(criterion: Any, *args: Any, **kwargs: Any) -> Any:
        loss, size, log = forward(criterion, *args, **kwargs)
        return 0 * loss, size, log

    def watch(task: TranslationTask, sample: Any, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for name, parameter in model.named_parameters():
            seen.setdefault(name, parameter.detach().clone())
        return train_step(task, sample, model, *args, **kwargs)

    monkeypatch.setattr(LabelSmoothedCrossEntropyCriterion, "forward", without_gradient)
    monkeypatch.setattr(TranslationTask, "train_step", watch)
    warmup = toy.RECIPE.index("--lr-scheduler")
    monkeypatch.setattr(toy, "RECIPE", (*toy.RECIPE[:warmup], "--lr-scheduler", "fixed", *toy.RECIPE[warmup + 4 :]))
    return seen


def train(data: Path, directory: Path, updates: int, *flags: str) -> Any:
    flags = ("--lr", str(LR), "--weight-decay", str(DECAY), "--max-update", str(updates), *REZERO, *flags)
    flags = ("--no-epoch-checkpoints", *flags)
    return torch.load(toy.train_toy(data, directory, *flags, arch="deep_transformer"), weights_only=True)


def kept(name: str) -> bool:
    """Whether :data:`EXCLUDED` names the parameter."""
    return "layer_norm" in name or name.endswith((".bias", "alpha"))


def check(start: dict[str, Tensor], end: dict[str, Tensor], updates: int, rounding: float) -> None:
    """Every excluded parameter is what it was, every other one is (1 - lr * decay)^updates of it."""
    assert sum(kept(name) for name in start) > 40
    assert len(start) - sum(kept(name) for name in start) > 20
    for name, before in start.items():
        if kept(name):
            assert torch.equal(end[name], before), name
        else:
            shrunk = before.double() * (1 - LR * DECAY) ** updates
            torch.testing.assert_close(end[name].double(), shrunk, rtol=rounding, atol=1e-6, msg=name)


ROUNDING = {"bf16": 2e-2, "memory_efficient_bf16": 2e-2, "fp16": 3e-3, "memory_efficient_fp16": 3e-3}
"""Relative, of the precisions in which more than float32's rounding is left."""
FAST = (("adam", "single"), ("adam", "fp16"), ("radam", "memory_efficient_fp16"))
SLOW = [("adam", name) for name in ("bf16", "memory_efficient_bf16", "memory_efficient_fp16", "amp")]
SLOW += [("radam", "single"), ("radam", "fp16")]
OTHERS = [(name, "single") for name in ("adamax", "sgd", "nag --momentum 0", "adam --use-bmuf")]


@pytest.mark.parametrize(
    ("optimizer", "precision"), [*FAST, *OTHERS, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_excluded_parameters_stay_with_every_optimizer_in_every_precision(
    optimizer: str, precision: str, start: dict[str, Tensor], toy_data: Path, tmp_path: Path
) -> None:
    """Across a checkpoint, too: three updates, then three more."""
    flags = ("--amp",) if precision == "amp" else toy.PRECISIONS[precision]
    for stop in (3, 6):
        state = train(toy_data, tmp_path, stop, "--optimizer", *optimizer.split(), *flags, *EXCLUDED)
        check(start, state["model"], stop, ROUNDING.get(precision, 1e-6))
    groups = state["last_optimizer_state"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [DECAY, 0.0]
    assert [group.get("param_group") for group in groups] == [None, "no weight decay on norm,residual,bias"]


def half_model(seed: int = 4) -> nn.Module:
    return models.build("--arch", "deep_transformer", *REZERO, *EXCLUDED, seed=seed).half()


def flat_or_not(model: nn.Module, directory: Path, *flags: str) -> FP16Optimizer:
    config = toy.parse_training(
        Path("nowhere"), directory, "--fp16", "--fp16-init-scale", "4", "--weight-decay", str(DECAY), *flags
    )
    return FP16Optimizer.build_optimizer(config, list(model.parameters()))


def step(model: nn.Module, optimizer: FP16Optimizer, seed: int) -> None:
    optimizer.set_lr(LR)
    optimizer.zero_grad()
    draw = torch.Generator().manual_seed(seed)
    loss = sum((p * torch.randn(p.shape, generator=draw).half()).sum().float() for p in model.parameters())
    optimizer.backward(loss)
    optimizer.multiply_grads(0.25)
    optimizer.clip_grad_norm(1.0)
    optimizer.step()


@pytest.mark.parametrize("name", ["adam", "radam"])
def test_flat_master_weights_are_divided(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq makes flat ones on the current GPU; here that is no GPU but the CPU, whose index is None."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    flat_model, model = half_model(), half_model()
    flat = flat_or_not(flat_model, tmp_path, "--optimizer", name)
    separate = flat_or_not(model, tmp_path, "--optimizer", name, "--fp16-no-flatten-grads")
    assert flat.has_flat_params
    assert [len(group["params"]) for group in flat.param_groups] == [1, 1]
    assert [group["weight_decay"] for group in flat.param_groups] == [DECAY, 0.0]
    sizes = [sum(p.numel() for p in group["params"]) for group in separate.param_groups]
    assert [group["params"][0].numel() for group in flat.param_groups] == sizes
    for seed in range(8):
        step(flat_model, flat, seed)
        step(model, separate, seed)
    for (where, found), (_, wanted) in zip(flat_model.named_parameters(), model.named_parameters(), strict=True):
        # Norms of gradients add up differently.
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=1e-5, msg=where)
    again = flat_or_not(flat_model, tmp_path, "--optimizer", name)
    again.load_state_dict(flat.state_dict())
    for one, other in zip(again.param_groups, flat.param_groups, strict=True):
        for p, q in zip(one["params"], other["params"], strict=True):
            assert torch.equal(again.optimizer.state[p]["exp_avg"], flat.optimizer.state[q]["exp_avg"])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        pytest.param((), EXCLUDED, "without {0}, .* with {0} norm,residual,bias: keep", marks=pytest.mark.slow),
        pytest.param(EXCLUDED, (), "with {0} norm,residual,bias, .* without {0}: keep", marks=pytest.mark.slow),
        (EXCLUDED, (EXCLUDED[0], "norm"), "with {0} norm,residual,bias, .* with {0} norm: keep"),
    ],
)
def test_another_setting_is_refused_at_a_checkpoint(
    before: tuple[str, ...], after: tuple[str, ...], message: str, toy_data: Path, tmp_path: Path
) -> None:
    train(toy_data, tmp_path, 2, *before)
    with pytest.raises(UserError, match="trained " + message.format(EXCLUDED[0])):
        train(toy_data, tmp_path, 4, *after)
    state = train(toy_data, tmp_path, 4, *after, "--reset-optimizer")
    assert len(state["last_optimizer_state"]["param_groups"]) == (2 if after else 1)


def test_overrides_at_a_checkpoint_leave_them_alone(toy_data: Path, tmp_path: Path) -> None:
    train(toy_data, tmp_path, 2, *EXCLUDED)
    state = train(toy_data, tmp_path, 4, *EXCLUDED, "--optimizer-overrides", "{'weight_decay': 0.25}")
    groups = state["last_optimizer_state"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.25, 0.0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--weight-decay", "0"), "has no effect without weight decay: add --weight-decay"),
        (("--zero-sharding", "os"), "cannot be combined with --zero-sharding os"),
        (("--ddp-backend", "fully_sharded"), "cannot be combined with --ddp-backend fully_sharded"),
        (("--weight-decay", "0", "--zero-sharding", "os"), "without weight decay.*; .*--zero-sharding"),
    ],
)
def test_is_refused_where_it_would_do_nothing(
    flags: tuple[str, ...], message: str, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairseq_plugins.core.stacks.fsdp_wrap", lambda layer, **kwargs: layer)
    monkeypatch.setattr("fairseq_cli.train.fsdp_enable_wrap", lambda cfg: contextlib.nullcontext())
    monkeypatch.setattr("fairseq_cli.train.fsdp_wrap", lambda model, **kwargs: model)
    with pytest.raises(UserError, match=message):
        train(toy_data, tmp_path, 1, *EXCLUDED, *flags)


def test_the_composite_optimizer_is_refused(toy_data: Path, tmp_path: Path) -> None:
    content = recipe(
        TranslationTask, toy_data, tmp_path, {"_name": "pre_ln_transformer", **TINY, "no_weight_decay_on": "norm"}
    )
    content["optimizer"] = {"_name": "composite", "groups": {}}
    with pytest.raises(UserError, match="cannot be combined with --optimizer composite"):
        run_hydra(tmp_path / "config", content, tmp_path / "run")
