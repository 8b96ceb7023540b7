"""Exclude parameters from weight decay, with every optimizer and in every precision.

No paper of this package excludes a parameter from the decay, and fairseq decays all: one flat group. A setting of the
model names the kinds to exclude::

    fairseq-train data-bin --user-dir "$(python -m fairseq_plugins)" --arch admin_transformer \
        --optimizer radam --weight-decay 0.0001 --no-weight-decay-on norm,residual,bias ...

or in YAML ``model: {no_weight_decay_on: "norm,residual,bias"}``. The model marks the parameters
(:mod:`fairseq_plugins.core.weight_decay`) with the attribute ``param_group`` that fairseq provides for this and carries
over to the master weights of half precision. fairseq respects it in one optimizer only, ``composite``, which no flag
can express, which cannot have flat master weights, and which cannot be resumed under ``--memory-efficient-fp16``. So
the group is made here, after fairseq's ``build_optimizer``: a second parameter group of the resulting torch optimizer,
with the settings of the first and weight decay 0. If ``--fp16`` keeps all master weights in one flat tensor, the
parameters are sorted, the undecayed ones last, and each group gets its part of that tensor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from fairseq import optim
from fairseq.optim import FairseqOptimizer, FP16Optimizer
from fairseq.trainer import Trainer
from torch import nn

from fairseq_plugins.core.weight_decay import FLAG, PREFIX, is_undecayed
from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap

logger = logging.getLogger(__name__)
# Key of a torch parameter group, and hence of a checkpoint, that names its content.
NAME = "param_group"


def _problems(cfg: Any) -> Iterator[str]:
    """Yield the reasons why the training that ``cfg`` describes could not respect the setting."""
    parallel, name = cfg.distributed_training, getattr(cfg.optimizer, "_name", None)
    if name == "composite":
        yield f"{FLAG} cannot be combined with --optimizer composite, which has a weight decay for each of its groups"
    elif not getattr(cfg.optimizer, "weight_decay", 0):
        yield f"{FLAG} has no effect without weight decay: add --weight-decay, or drop {FLAG}"
    if parallel.ddp_backend == "fully_sharded":
        yield f"{FLAG} cannot be combined with --ddp-backend fully_sharded, which joins the parameters of a layer"
    if parallel.zero_sharding == "os":
        yield f"{FLAG} cannot be combined with --zero-sharding os, which makes an optimizer of its own"


def refuse(
    build: Callable[..., None], trainer: Trainer, cfg: Any, task: Any, model: nn.Module, *args: Any, **kwargs: Any
) -> None:
    """``Trainer.__init__`` that refuses trainings in which marked parameters would be decayed, or none would be.

    Raises:
        UserError: all problems together.
    """
    if any(is_undecayed(parameter) for parameter in model.parameters()):
        problems = list(_problems(cfg))
        if problems:
            raise UserError(problems)
    build(trainer, cfg, task, model, *args, **kwargs)


def split(build: Callable[..., FairseqOptimizer], *args: Any, **kwargs: Any) -> FairseqOptimizer:
    """``fairseq.optim.build_optimizer`` that puts marked parameters into a separate group."""
    optimizer = build(*args, **kwargs)
    if any(is_undecayed(parameter) for parameter in optimizer.params):
        (group,) = optimizer.param_groups
        undecayed = [p for p in group["params"] if is_undecayed(p)]
        _divide(optimizer, [p for p in group["params"] if not is_undecayed(p)], undecayed, undecayed[0].param_group)
    return optimizer


def split_flat(build: Callable[..., FP16Optimizer], cfg: Any, params: list[Any], **kwargs: Any) -> FP16Optimizer:
    """``FP16Optimizer.build_optimizer`` that also divides flat master weights."""
    undecayed = [p for p in params if is_undecayed(p)]
    if not undecayed or cfg.common.fp16_no_flatten_grads or cfg.common.bf16:
        return build(cfg, params, **kwargs)
    optimizer = build(cfg, [p for p in params if not is_undecayed(p)] + undecayed, **kwargs)
    parts: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    for device, flat in optimizer.fp32_params.items():
        here = [p for p in undecayed if len(optimizer.fp32_params) == 1 or p.device.index == device]
        border = flat.numel() - sum(p.numel() for p in here)
        for is_last, place in ((False, slice(0, border)), (True, slice(border, None))):
            part = nn.Parameter(flat.data[place])  # a view of `flat`, and so of its gradient
            part.grad = flat.grad[place]
            parts[is_last].append(part)
    _divide(optimizer.fp32_optimizer, parts[False], parts[True], undecayed[0].param_group)
    return optimizer


def _divide(optimizer: FairseqOptimizer, decayed: list[Any], undecayed: list[Any], name: str) -> None:
    """Divide the optimizer's only group into two."""
    (group,) = optimizer.param_groups
    group["params"] = decayed
    settings = {key: value for key, value in group.items() if key != "params"}
    optimizer.optimizer.add_param_group({**settings, "params": undecayed, "weight_decay": 0.0, NAME: name})
    numbers = sum(p.numel() for p in undecayed)
    logger.info(f"{name}: {numbers:,} of {numbers + sum(p.numel() for p in decayed):,} parameters")


def load(
    original: Callable[..., None],
    optimizer: FairseqOptimizer,
    state_dict: dict[str, Any],
    optimizer_overrides: dict[str, Any] | None = None,
) -> None:
    """``FairseqOptimizer.load_state_dict`` that returns each state to the group it was saved from.

    Raises:
        UserError: the checkpoint's training excluded other parameters; torch would match them by their number.
    """
    saved = _undecayed_groups(state_dict.get("param_groups", ()))
    own = _undecayed_groups(optimizer.param_groups)
    if saved != own:
        raise UserError(
            f"the checkpoint was trained {_in_words(saved)}, but this training would continue {_in_words(own)}: "
            "keep the setting, or use --reset-optimizer"
        )
    original(optimizer, state_dict, optimizer_overrides)
    for group in optimizer.param_groups:
        if group.get(NAME, "").startswith(PREFIX):
            group["weight_decay"] = 0.0  # --optimizer-overrides applies to all groups


def _undecayed_groups(groups: Any) -> list[str]:
    return [group[NAME] for group in groups if str(group.get(NAME, "")).startswith(PREFIX)]


def _in_words(names: list[str]) -> str:
    return f"with {FLAG} {names[0].removeprefix(PREFIX)}" if names else f"without {FLAG}"


def install() -> None:
    """Wrap the functions that build and load optimizers; a second call changes nothing."""
    wrap(Trainer, "__init__", refuse, order=40)
    wrap(optim, "build_optimizer", split)
    wrap(FP16Optimizer, "build_optimizer", split_flat)
    wrap(FairseqOptimizer, "load_state_dict", load)
