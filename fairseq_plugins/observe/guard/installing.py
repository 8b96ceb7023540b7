"""Hooks of the guard in fairseq's trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from fairseq_cli import train as training_command

from fairseq_plugins.errors import UserError
from fairseq_plugins.observe.guard import checkpoints, precision, settings, unguarded
from fairseq_plugins.observe.guard.guarding import ATTRIBUTE, Guard, guard_of
from fairseq_plugins.observe.recorder.criteria import WithDiagnostics
from fairseq_plugins.patches.wrapping import wrap


def attach(
    build: Callable[..., None],
    trainer: Trainer,
    cfg: Any,
    task: Any,
    model: Any,
    criterion: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """``Trainer.__init__`` that gives the trainer a guard if the criterion has one.

    Raises:
        UserError: the processes of the training do not have the same gradients, or the action cannot be taken.
    """
    chosen = settings.read(criterion.settings) if isinstance(criterion, WithDiagnostics) else None
    if chosen is not None:
        _refuse(cfg, chosen)
    build(trainer, cfg, task, model, criterion, *args, **kwargs)
    if chosen is not None:
        setattr(trainer, ATTRIBUTE, Guard(trainer, criterion, chosen))


def _refuse(cfg: Any, chosen: settings.Settings) -> None:
    if cfg.optimization.use_bmuf or cfg.distributed_training.ddp_backend == "slowmo":
        raise UserError(
            "--divergence-action needs the gradients of all processes in each update: "
            "it does not work with --use-bmuf or --ddp-backend slowmo"
        )
    if chosen.action == settings.FP32:
        precision.refuse_what_cannot_change(cfg)


def step(train_step: Callable[..., Any], trainer: Trainer, samples: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step`` that ends in one line, or under guard."""
    guard = guard_of(trainer)
    if guard is None:
        return unguarded.step(train_step, trainer, samples, *args, **kwargs)
    return guard.step(train_step, trainer, samples, *args, **kwargs)


def clip(clip_grad_norm: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.clip_grad_norm``, where an update is judged."""
    guard = guard_of(trainer)
    if guard is None:
        return unguarded.clip(clip_grad_norm, trainer, *args, **kwargs)
    return guard.judge(clip_grad_norm, trainer, *args, **kwargs)


def add_up(aggregate: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer._aggregate_logging_outputs``, which adds up the logging outputs of all processes."""
    outputs, *rest = aggregate(trainer, *args, **kwargs)
    guard = guard_of(trainer)
    if guard is not None:
        guard.hear_all(outputs)
    return (outputs, *rest)


def schedule(act: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """A method that moves the schedule of the learning rate, followed by the guard's factor."""
    guard = guard_of(trainer)
    if guard is None or not guard.rates.at_work:
        return act(trainer, *args, **kwargs)
    with guard.rates.lifted(trainer.optimizer):
        rate = act(trainer, *args, **kwargs)
    return guard.rates.log(rate)


def install() -> None:
    """Hook the guard into fairseq's trainer; a second call changes nothing."""
    wrap(Trainer, "__init__", attach, order=20)
    wrap(Trainer, "train_step", step, order=30)
    wrap(Trainer, "clip_grad_norm", clip, order=20)
    wrap(Trainer, "_check_grad_norms", unguarded.check_norms)
    wrap(Trainer, "_aggregate_logging_outputs", add_up)
    for name in ("lr_step_update", "lr_step", "lr_step_begin_epoch"):
        wrap(Trainer, name, schedule)
    wrap(Trainer, "state_dict", checkpoints.save)
    wrap(Trainer, "load_checkpoint", checkpoints.load, order=10)
    wrap(training_command, "train", checkpoints.keep_last)
