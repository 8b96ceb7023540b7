"""Hooks of the guard in fairseq's trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from fairseq_cli import train as training_command

from fairseq_plugins.errors import UserError
from fairseq_plugins.observe.guard import checkpoints, ending, settings
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
        UserError: the processes of the training do not have the same gradients.
    """
    chosen = settings.read(criterion.settings) if isinstance(criterion, WithDiagnostics) else None
    if chosen and (cfg.optimization.use_bmuf or cfg.distributed_training.ddp_backend == "slowmo"):
        raise UserError(
            "--divergence-action needs the gradients of all processes in each update: "
            "it does not work with --use-bmuf or --ddp-backend slowmo"
        )
    build(trainer, cfg, task, model, criterion, *args, **kwargs)
    if chosen:
        setattr(trainer, ATTRIBUTE, Guard(trainer, criterion, chosen))


def step(train_step: Callable[..., Any], trainer: Trainer, samples: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step`` that ends in one line, or under guard."""
    guard = guard_of(trainer)
    if guard is None:
        return ending.step(train_step, trainer, samples, *args, **kwargs)
    return guard.step(train_step, trainer, samples, *args, **kwargs)


def clip(clip_grad_norm: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.clip_grad_norm``, where an update is judged."""
    guard = guard_of(trainer)
    if guard is None:
        return ending.clip(clip_grad_norm, trainer, *args, **kwargs)
    return guard.judge(clip_grad_norm, trainer, *args, **kwargs)


def add_up(aggregate: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer._aggregate_logging_outputs``, which adds up the logging outputs of all processes."""
    outputs, *rest = aggregate(trainer, *args, **kwargs)
    guard = guard_of(trainer)
    if guard is not None:
        guard.hear_all(outputs)
    return (outputs, *rest)


def install() -> None:
    """Hook the guard into fairseq's trainer; a second call changes nothing."""
    wrap(Trainer, "__init__", attach, order=5)
    wrap(Trainer, "train_step", step, order=30)
    wrap(Trainer, "clip_grad_norm", clip, order=20)
    wrap(Trainer, "_check_grad_norms", ending.check_norms)
    wrap(Trainer, "_aggregate_logging_outputs", add_up)
    wrap(Trainer, "state_dict", checkpoints.save)
    wrap(Trainer, "load_checkpoint", checkpoints.load, order=10)
    wrap(training_command, "train", checkpoints.keep_last)
