"""Hooks of the guard in fairseq's trainer, its state in checkpoints, and the checkpoint of a training that diverges.

The import of this module installs guard and recorder. ``extra_state`` has the bands, so that a resumed training
continues with them.
"""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from fairseq_cli import train as training_command

from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.tools.observe.guard.guarding import Guard, judge, step, with_place
from fairseq_plugins.tools.observe.guard.repeating import not_finite
from fairseq_plugins.tools.observe.recorder.criteria import WithDiagnostics
from fairseq_plugins.wrapping import wrap

logger = logging.getLogger(__name__)

LAST = "divergence/last.pt"
"""Checkpoint below ``--save-dir``: the training at its end."""


def attach(
    build: Callable[..., None], trainer: Trainer, cfg: Any, task: Any, model: Any, criterion: Any, quantizer: Any = None
) -> None:
    """``Trainer.__init__`` that gives the trainer a guard.

    Raises UserError: there is an action, and the processes of the training do not have the same gradients.
    """
    acts = isinstance(criterion, WithDiagnostics) and criterion.settings.divergence_action is not None
    if acts and (cfg.optimization.use_bmuf or cfg.distributed_training.ddp_backend == "slowmo"):
        raise UserError(
            "--divergence-action needs the gradients of all processes in each update: "
            "it does not work with --use-bmuf or --ddp-backend slowmo"
        )
    build(trainer, cfg, task, model, criterion, quantizer)
    trainer.divergence_guard = Guard(trainer, criterion)


def check_norms(check: Callable[..., None], trainer: Trainer, *args: Any) -> None:
    """``Trainer._check_grad_norms``: different gradients in the processes are a UserError and no divergence."""
    try:
        check(trainer, *args)
    except FloatingPointError as error:
        advice, *rest = str(error).splitlines()
        ranks = ", ".join(line for line in rest if line.startswith("rank"))
        raise UserError(f"{advice.removeprefix('Fatal error: ')} Gradient norms: {ranks}") from None


def add_up(aggregate: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer._aggregate_logging_outputs``: the results of all processes replace those of this one."""
    outputs, *rest = aggregate(trainer, *args, **kwargs)
    if trainer.divergence_guard.acts:
        trainer.divergence_guard.outputs = list(outputs)
    return (outputs, *rest)


def save(state_dict: Callable[..., dict[str, Any]], trainer: Trainer) -> dict[str, Any]:
    """``Trainer.state_dict`` with the state of the guard."""
    guard, state = trainer.divergence_guard, state_dict(trainer)
    if guard.acts:
        state["extra_state"]["divergence_guard"] = {"signals": guard.signals.state()}
    return state


def load(
    load: Callable[..., Any], trainer: Trainer, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.load_checkpoint`` that restores the state of the guard."""
    extra_state = load(trainer, filename, reset_optimizer, *args, **kwargs)
    guard = trainer.divergence_guard
    # A new optimizer means a new training, perhaps on other data.
    if guard.acts and not reset_optimizer:
        state = (extra_state or {}).get("divergence_guard") or {}
        guard.signals.restore(state.get("signals", {}))
    return extra_state


def keep_last(train: Callable[..., Any], cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, *args: Any) -> Any:
    """``fairseq_cli.train.train``, the only function with the position in the data; saves a training that was ended.

    Raises Diverged: passed on, or the training is complete and its weights are not finite.
    """
    try:
        valid_losses, should_stop = train(cfg, trainer, task, epoch_itr, *args)
        if should_stop or epoch_itr.next_epoch_idx > (cfg.optimization.max_epoch or math.inf):
            refuse_broken_weights(trainer, valid_losses)
        return valid_losses, should_stop
    except Diverged:
        # A training cannot continue from weights that are not finite.
        if not cfg.checkpoint.no_save and not not_finite(trainer.get_model()):
            _save_last(trainer, epoch_itr)
        # The first process that exits ends the others, and the one that writes may not be finished.
        if trainer.data_parallel_world_size > 1:
            dist.barrier(group=trainer.data_parallel_process_group)
        raise


def refuse_broken_weights(trainer: Trainer, valid_losses: Sequence[float | None]) -> None:
    """Check a complete training, which no update follows; raises Diverged if weights or validation loss are broken."""
    if broken := not_finite(trainer.get_model()):
        more = f" and {len(broken) - 1} more weights" if len(broken) > 1 else ""
        reason = f"{broken[0]}{more}, also in the last checkpoint, are not finite"
    elif any(loss is not None and math.isnan(loss) for loss in valid_losses):
        reason = "the validation loss is not a number"
    else:
        return
    update, reason = trainer.get_num_updates(), with_place(reason, trainer.get_lr(), None)
    trainer.divergence_guard.tell(trainer, update, reason, "", ends=True)
    raise Diverged(f"diverged at update {update}: {reason}")


def _save_last(trainer: Trainer, epoch_itr: Any) -> None:
    path = Path(trainer.cfg.checkpoint.save_dir) / LAST
    trainer.consolidate_optimizer()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"train_iterator": epoch_itr.state_dict(), "val_loss": None}
        # Otherwise the next validation would count as the best, and overwrite the best checkpoint.
        if hasattr(checkpoint_utils.save_checkpoint, "best"):
            state["best"] = checkpoint_utils.save_checkpoint.best
        trainer.save_checkpoint(str(path), state)
    except (OSError, UserError) as error:
        logger.warning("divergence guard: not saved: %s", error)


wrap(Trainer, "__init__", attach, order=5)
wrap(Trainer, "train_step", step, order=30)
wrap(Trainer, "clip_grad_norm", judge, order=20)
wrap(Trainer, "_check_grad_norms", check_norms)
wrap(Trainer, "_aggregate_logging_outputs", add_up)
wrap(Trainer, "state_dict", save)
wrap(Trainer, "load_checkpoint", load, order=10)
wrap(training_command, "train", keep_last)
