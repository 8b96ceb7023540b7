"""The guard of one training: judges each update before the weights are changed.

The guard judges an update where ``Trainer.clip_grad_norm`` is called, with the gradients of all processes and before
the weights change. An abnormal update leaves ``Trainer.train_step`` with an exception that fairseq does not catch; the
caller gets ``None``, as after an overflow. All processes have equal losses and norms, so they decide alike.

Without an action, the guard only ends a training where fairseq gives up; fairseq would print every weight and a trace.
"""

import json
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged
from fairseq_plugins.tools.observe.guard import repeating
from fairseq_plugins.tools.observe.guard.places import FaultPlace, PlaceBands, weakest
from fairseq_plugins.tools.observe.guard.plateau import PlateauWatch
from fairseq_plugins.tools.observe.guard.signals import Finding, Signals, Update, hopeless
from fairseq_plugins.tools.observe.recorder.criteria import SKIP, STOP, Diagnostics, WithDiagnostics
from fairseq_plugins.tools.observe.recorder.gradients import gradient_norms, has_scale, remaining_factor
from fairseq_plugins.tools.observe.recorder.recording import recorder_of

# Child of fairseq_cli.train's logger, so that --log-file contains these messages.
logger = logging.getLogger("fairseq_cli.train.guard")

NOTED = "noted"
"""No action: the update is logged and applied."""
ENDS = "the training ends here"


class Abnormal(repeating.LeftUpdate):
    """Leaves an update that is abnormal; has the update, the finding, the action and its description."""


class Guard:
    """The guard of one training; with an action of the user, there is a recorder, and the criterion reports losses.

    Attributes:
        acts: whether the user has chosen an action.
        outputs: results of the criterion in the current update.
        in_a_row: abnormal updates since the last normal update.
    """

    def __init__(self, trainer: Trainer, criterion: Any) -> None:
        self.settings = criterion.settings if isinstance(criterion, WithDiagnostics) else Diagnostics()
        self.acts = self.settings.divergence_action is not None
        dictionary = getattr(trainer.task, "target_dictionary", None)
        even = math.log2(len(dictionary)) if dictionary is not None else 0.0
        self.signals, self.places = Signals(self.settings.divergence_band, even), PlaceBands()
        self.plateau = PlateauWatch(trainer.cfg.lr_scheduler, self.settings.divergence_plateau)
        self.in_a_row = 0
        self.outputs: list[dict[str, Any]] = []
        self._pending: Update | None = None
        if self.acts and (recorder := recorder_of(trainer)):
            recorder.observers.append(self.places)
            criterion.listeners = (*criterion.listeners, lambda result: self.outputs.append(result[2]))
            logger.info("divergence guard: %s", self.settings.divergence_action)

    def _decide(self, finding: Finding) -> tuple[str, str]:
        """Return the action on an abnormal update, and its description for the log.

        Clipping handles a single large gradient, and most trainings continue as before; if one does not, its loss shows
        it at the next update. Skipping costs one batch, so `skip` acts immediately.
        """
        if not self.acts:
            return STOP, ""
        number, patience = self.in_a_row, self.settings.divergence_patience
        if self.settings.divergence_action == SKIP:
            if number >= patience:
                return STOP, f"skip, then stop: {number} abnormal updates in a row; {ENDS}"
            return SKIP, f"skip: the update is dropped ({number} in a row, {patience} end it)"
        if finding.gradient_alone and number < patience:
            kept = "noted: the loss is within its band, so the update is kept"
            return NOTED, f"{kept} ({number} in a row, stop at {patience})"
        return STOP, f"stop: {f'{number} abnormal updates in a row; ' if finding.gradient_alone else ''}{ENDS}"

    def _seen(self, trainer: Trainer, norm: Any) -> Update:
        """Return the numbers of the update, read from the device at once."""
        names = ("loss", "nll_loss", "ntokens", "sample_size")
        parts = ([output.get(name, 0) for output in self.outputs] for name in names)
        values: list[Any] = [
            sum(v.detach().double().sum() if isinstance(v, torch.Tensor) else float(v) for v in part) for part in parts
        ]
        values.append(norm)
        # A Python number stays on the host: sending it to a GPU would synchronise.
        if on_device := [value for value in values if isinstance(value, torch.Tensor)]:
            read = iter(torch.stack([value.to(on_device[0].device, torch.float64) for value in on_device]).tolist())
            values = [next(read) if isinstance(value, torch.Tensor) else value for value in values]
        loss, nll, tokens, size, length = values
        criterion = trainer.get_criterion()
        if not any("nll_loss" in output for output in self.outputs):
            nll = loss
        if getattr(criterion, "sentence_avg", False):
            loss, size = nll, tokens  # a loss per sentence grows with the length of the sentences
        return Update(
            trainer.get_num_updates() + 1,
            loss / (size or 1.0) / math.log(2),
            nll / (tokens or 1.0) / math.log(2),
            length,
            float(trainer.get_lr()),
            has_scale(trainer.optimizer),
            tokens,
        )

    def _place(
        self, update: Update, train_step: Callable[..., Any], trainer: Trainer, samples: Any
    ) -> FaultPlace | None:
        """Repeat the update under hooks and return where it fails; None if processes do not compute it together."""
        if trainer.cfg.optimization.use_bmuf or trainer.cfg.distributed_training.ddp_backend == "slowmo":
            return None
        recorder = recorder_of(trainer)
        if recorder is not None:
            recorder.measured = {}
            recorder.start(trainer, samples)
        try:
            search = repeating.repeat(train_step, trainer, samples)
        finally:
            if recorder is not None:
                recorder.stop()
        modules = (trainer.get_model(), trainer.get_criterion())
        values = recorder.measured if recorder else gradient_norms(modules, remaining_factor(trainer.optimizer))
        return search.place(trainer) or self.places.place(update.number, values)

    def tell(self, trainer: Trainer, update: int, reason: str, says: str, ends: bool = False) -> None:
        """Log the action for readers and for programs, in the first process."""
        if not trainer.is_data_parallel_master:
            return
        text = f"{reason}; {says}" if says else reason
        if self.acts:
            logger.warning("divergence guard: update %d: %s", update, text)
        # The terminal gets the line of the exception, which a log file would lack.
        if self.acts or trainer.cfg.common.log_file:
            logger.info(record(update, text, reason if ends else ""))

    def _look_for_plateau(self, trainer: Trainer) -> None:
        """Look at the loss of an update that was applied; raises Diverged if the action on failed trainings is stop."""
        # Torch's automatic mixed precision repeats an update inside itself: the repeated one counts.
        update, self._pending = self._pending, None
        if not self.acts or update is None or trainer.get_num_updates() != update.number:
            return
        reason = self.plateau.look(update.number, update.nll, trainer.task, trainer.cfg.dataset.train_subset)
        if reason is None:
            return
        place = weakest(self.places.last)
        reason += f"; stuck in {place.name} ({place.how})" if place else ""
        stops = self.settings.divergence_action == STOP
        says = f"stop: {ENDS}" if stops else "nothing is done: skip would not help"
        self.tell(trainer, update.number, reason, says, ends=stops)
        if stops:
            raise Diverged(reason)


def record(update: int, text: str, ends: str = "") -> str:
    """Return an action of the guard as the line of a log that programs read; ``ends`` is why the training ends."""
    line = json.dumps({"divergence_guard": text, "update": update, "ends": ends})
    # A reader finds a record without inner braces at the end of a line of the log.
    return "{" + line[1:-1].replace("{", "\\u007b").replace("}", "\\u007d") + "}"


def with_place(reason: str, rate: float, place: FaultPlace | None) -> str:
    """Return why a training ends, with its learning rate and the place where that shows first."""
    return f"{reason}; learning rate {rate:.3g}" + (f"; first in {place.name} ({place.how})" if place else "")


def step(train_step: Callable[..., Any], trainer: Trainer, samples: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step`` under guard. Raises Diverged: the training ends."""
    guard: Guard = trainer.divergence_guard
    guard.outputs, guard._pending = [], None
    try:
        with repeating.balanced_meters():
            result = train_step(trainer, samples, *args, **kwargs)
    except Abnormal as abnormal:
        update, finding, action, says = abnormal.args
        place = guard._place(update, train_step, trainer, samples)
        # The update is dropped as if there had been no batch. Torch's scaler unscales once per update, and must be told
        # that the update is over.
        scaler = getattr(trainer.optimizer, "scaler", None)
        if isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled():
            scaler.update()
        repeating.reset_factor(trainer.optimizer)
        trainer.zero_grad()
        if recorder := recorder_of(trainer):
            # The last numbers of a failing run matter most, also between recorded updates.
            recorder.finish(trainer, repeated=True)
        reason = with_place(finding.reason, update.learning_rate, place)
        guard.tell(trainer, update.number, reason, says, ends=action == STOP)
        if action == STOP:
            raise Diverged(f"diverged at update {update.number}: {reason}") from None
        return None
    guard._look_for_plateau(trainer)
    return result


def judge(clip_grad_norm: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.clip_grad_norm``, where fairseq itself detects overflows.

    Raises:
        Abnormal: the update must be left.
        Repeated: the update was repeated only for its statistics.
    """
    if getattr(trainer, repeating.REPEATING, False):
        raise repeating.Repeated
    guard: Guard = trainer.divergence_guard
    norm: Any = math.inf
    refusal: Exception | None = None
    try:
        norm = clip_grad_norm(trainer, *args, **kwargs)
    except (OverflowError, FloatingPointError) as error:
        refusal = error
    guard._pending = update = guard._seen(trainer, norm)
    if reason := hopeless(update, given_up=isinstance(refusal, FloatingPointError)):
        finding: Finding | None = Finding(reason)
    else:
        finding = guard.signals.judge(update) if guard.acts else None
    if finding is not None:
        guard.in_a_row += 1
        action, says = guard._decide(finding)
        if action != NOTED:
            raise Abnormal(update, finding, action, says)
        guard.signals.take(update)
        # Clipping has scaled all gradients alike.
        norms = gradient_norms((trainer.get_model(), trainer.get_criterion()), 1.0)
        by = update.norm / (norms["gradient_norm"] or 1.0)
        place = guard.places.place(update.number, {name: by * value for name, value in norms.items()})
        guard.tell(trainer, update.number, with_place(finding.reason, update.learning_rate, place), says)
    elif math.isfinite(update.norm):
        guard.in_a_row = 0
    if refusal is not None:
        raise refusal
    return norm
