"""A training ends in one line where fairseq gives up, with a guard or without.

fairseq prints the norm of every weight, every gradient that is not finite, and a trace. Here the update is repeated
once to name the place, and the training ends as one that the guard stops.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.observe.guard.places import Place, backward_culprit
from fairseq_plugins.observe.guard.repeating import LeftUpdate, balanced_meters, leave_if_repeated, not_finite, repeat
from fairseq_plugins.observe.guard.signals import in_words
from fairseq_plugins.observe.recorder.gradients import gradient_norms, has_scale, remaining_factor

# Child of fairseq_cli.train's logger, so that --log-file contains these messages.
logger = logging.getLogger("fairseq_cli.train.guard")


class GivenUp(LeftUpdate):
    """Leaves an update at which fairseq gives up; the message is the reason."""


def step(train_step: Callable[..., Any], trainer: Trainer, samples: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step`` that ends the training in one line.

    Raises:
        Diverged: the gradients are not finite, and there is no loss scale that could be lowered.
    """
    try:
        with balanced_meters():
            return train_step(trainer, samples, *args, **kwargs)
    except GivenUp as given_up:
        place = _place(train_step, trainer, samples)
        end(trainer, trainer.get_num_updates() + 1, with_place(str(given_up), trainer.get_lr(), place))


def clip(clip_grad_norm: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.clip_grad_norm``, behind which fairseq gives up.

    Raises:
        GivenUp: it would.
    """
    leave_if_repeated(trainer)
    try:
        norm = clip_grad_norm(trainer, *args, **kwargs)
    except FloatingPointError:
        raise GivenUp(
            "minimum loss scale reached" if has_scale(trainer.optimizer) else "the gradient norm is not finite"
        ) from None
    if not trainer.cfg.common.amp and not torch.isfinite(norm).all():
        raise GivenUp(f"the gradient norm is {in_words(float(norm))}")
    return norm


def check_norms(check: Callable[..., None], trainer: Trainer, *args: Any) -> None:
    """``Trainer._check_grad_norms``: processes with different gradients, which is no divergence.

    Raises:
        UserError: they are different.
    """
    try:
        check(trainer, *args)
    except FloatingPointError as error:
        advice, *rest = str(error).splitlines()
        ranks = ", ".join(line for line in rest if line.startswith("rank"))
        raise UserError(f"{advice.removeprefix('Fatal error: ')} Gradient norms: {ranks}") from None


def record(update: int, text: str, ends: str = "") -> str:
    """Return an action of the guard as the line of a log that programs read.

    Args:
        update: number of the update.
        text: the problem and the action, for a reader.
        ends: why the training ends here, if it does.
    """
    line = json.dumps({"divergence_guard": text, "update": update, "ends": ends})
    # Without inner braces it can be found at the end of a line of the log.
    return "{" + line[1:-1].replace("{", "\\u007b").replace("}", "\\u007d") + "}"


def with_place(reason: str, rate: float, place: Place | None) -> str:
    """Return why a training ends, with its learning rate and the place where that shows first."""
    return f"{reason}; learning rate {rate:.3g}" + (f"; first in {place.name} ({place.how})" if place else "")


def refuse_broken_weights(trainer: Trainer, valid_losses: Sequence[float | None]) -> None:
    """Check a complete training, since no update follows that would notice.

    Args:
        trainer: its trainer.
        valid_losses: of the last validation.

    Raises:
        Diverged: some weights or the validation loss are not finite.
    """
    broken = not_finite(trainer.get_model())
    if broken:
        more = f" and {len(broken) - 1} more weights" if len(broken) > 1 else ""
        reason = f"{broken[0]}{more}, also in the last checkpoint, are not finite"
    elif any(loss is not None and math.isnan(loss) for loss in valid_losses):
        reason = "the validation loss is not a number"
    else:
        return
    end(trainer, trainer.get_num_updates(), with_place(reason, trainer.get_lr(), None))


def end(trainer: Trainer, update: int, reason: str) -> NoReturn:
    """End the training.

    Raises:
        Diverged: always.
    """
    # The terminal gets the line of the exception, which a log file would lack.
    if trainer.cfg.common.log_file and trainer.is_data_parallel_master:
        logger.info(record(update, reason, ends=reason))
    raise Diverged(f"diverged at update {update}: {reason}")


def _place(train_step: Callable[..., Any], trainer: Trainer, samples: Any) -> Place | None:
    """Return the first place that is not finite; ``None`` where processes do not compute each update together."""
    if trainer.cfg.optimization.use_bmuf or trainer.cfg.distributed_training.ddp_backend == "slowmo":
        return None
    search = repeat(train_step, trainer, samples)
    modules = (trainer.get_model(), trainer.get_criterion())
    norms = gradient_norms(modules, remaining_factor(trainer.optimizer))
    return search.place(trainer) or backward_culprit(norms)
