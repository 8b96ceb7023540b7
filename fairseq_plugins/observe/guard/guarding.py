"""The guard of one training: judges each update before the weights are changed.

An update is judged where ``Trainer.clip_grad_norm`` is called: the gradients of all processes are added up, the weights
are not changed yet. An abnormal update leaves ``Trainer.train_step`` by its own exception, which none of fairseq's
handlers catches, and the caller gets ``None``, as after an overflow. Loss and norm are the same in every process, so
all decide alike without communication.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged
from fairseq_plugins.observe.guard.ending import with_place
from fairseq_plugins.observe.guard.places import GRADIENT, PlaceBands, backward_culprit, first_outside, weakest
from fairseq_plugins.observe.guard.plateau import PlateauWatch, begins
from fairseq_plugins.observe.guard.repeating import (
    LeftUpdate,
    balanced_meters,
    kept_buffers,
    leave_if_repeated,
    not_finite,
    repeat,
    reset_factor,
)
from fairseq_plugins.observe.guard.report import DIRECTORY, Incident, Reports, record
from fairseq_plugins.observe.guard.settings import SKIP, STOP, Settings
from fairseq_plugins.observe.guard.signals import GRADIENT_SPIKE, NOT_FINITE, PLATEAU, Finding, Signals, Update
from fairseq_plugins.observe.recorder.criteria import WithDiagnostics
from fairseq_plugins.observe.recorder.gradients import has_scale, loss_scale
from fairseq_plugins.observe.recorder.recording import recorder_of

# Child of fairseq_cli.train's logger, so that --log-file contains these messages.
logger = logging.getLogger("fairseq_cli.train.guard")

ATTRIBUTE = "divergence_guard"
"""Attribute of a trainer that holds its guard."""
HISTORY = 200
"""Maximum number of updates that a guard remembers."""
NOTED = "noted"
"""No action: the update is reported and applied."""
ENDS = "the training ends here"


class Abnormal(LeftUpdate):
    """Leaves an update that is abnormal."""

    def __init__(self, update: Update, finding: Finding, action: str, says: str) -> None:
        super().__init__(finding.reason)
        self.update, self.finding, self.action, self.says = update, finding, action, says


class Guard:
    """The guard of one training.

    Args:
        trainer: its trainer, which has a recorder.
        criterion: its criterion, which reports the losses.
        settings: values of the flags.

    Attributes:
        signals: bands over loss and gradient norm.
        places: bands over the recorder's statistics.
        in_a_row: abnormal updates since the last normal one.
    """

    def __init__(self, trainer: Trainer, criterion: WithDiagnostics, settings: Settings) -> None:
        self.settings = settings
        dictionary = getattr(trainer.task, "target_dictionary", None)
        self.signals = Signals(settings.band, math.log2(len(dictionary)) if dictionary is not None else 0.0)
        self.places = PlaceBands()
        self.plateau = PlateauWatch(begins(trainer.cfg.lr_scheduler, settings.plateau))
        self.in_a_row = 0
        self._history: deque[Update] = deque(maxlen=HISTORY)
        self._outputs: list[dict[str, Any]] = []
        self._noted = False
        self._pending: Update | None = None
        self._incident: Incident | None = None
        self._directory = Path(trainer.cfg.checkpoint.save_dir) / DIRECTORY
        self._reports = Reports(self._directory) if trainer.is_data_parallel_master else None
        recorder = recorder_of(trainer)
        assert recorder is not None
        self._recorder = recorder
        recorder.observers.append(self.places)
        criterion.listeners = (*criterion.listeners, lambda result: self._outputs.append(result[2]))
        logger.info("divergence guard: %s; reports go to %s", settings.action, self._directory)

    def hear_all(self, outputs: list[dict[str, Any]]) -> None:
        """Note the results of all processes for the update; they replace those of this process."""
        self._outputs = list(outputs)

    def step(self, train_step: Callable[..., Any], trainer: Trainer, samples: Any, *args: Any, **kwargs: Any) -> Any:
        """Make one update, or handle an abnormal one.

        Raises:
            Diverged: the training ends.
        """
        self._outputs, self._pending = [], None
        try:
            with balanced_meters():
                result = train_step(trainer, samples, *args, **kwargs)
        except Abnormal as abnormal:
            incident = self._incident
            # If a large gradient has now become not finite, the failing module is not known yet.
            if incident is None or (incident.finding.kind, abnormal.finding.kind) == (GRADIENT_SPIKE, NOT_FINITE):
                incident = self._incident = self._explain(abnormal, train_step, trainer, samples)
            self._drop(trainer)
            result = None
            if abnormal.action == NOTED:
                result = self._apply(abnormal.update, train_step, trainer, samples, *args, **kwargs)
            # The last numbers of a failing run are the interesting ones, whatever the interval.
            self._recorder.finish(trainer, repeated=abnormal.action != NOTED)
            incident.ends = abnormal.action == STOP
            self._tell(incident, abnormal.update, abnormal.finding, abnormal.says)
            if incident.ends:
                reason = with_place(abnormal.finding.reason, abnormal.update.learning_rate, incident.place)
                named = self._named(incident)
                raise Diverged(f"diverged at update {abnormal.update.number}: {reason}{named}") from None
        self._made(trainer)
        return result

    def judge(self, clip_grad_norm: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        """``Trainer.clip_grad_norm``, where fairseq itself detects overflows.

        Raises:
            Abnormal: the update must be left.
            Repeated: it was made only for its statistics.
        """
        leave_if_repeated(trainer)
        if self._noted:
            return clip_grad_norm(trainer, *args, **kwargs)
        norm, refusal = torch.tensor(math.inf), None
        try:
            norm = clip_grad_norm(trainer, *args, **kwargs)
        except (OverflowError, FloatingPointError) as error:
            refusal = error
        self._pending = update = self._seen(trainer, norm)
        self._history.append(update)
        finding = self.signals.judge(update, minimum_reached=isinstance(refusal, FloatingPointError))
        if finding is not None:
            self.in_a_row += 1
            action, says = self._decide(finding)
            if action == NOTED:
                self.signals.take(update)
            if action != NOTED or self._incident is None:
                raise Abnormal(update, finding, action, says)
            self._tell(self._incident, update, finding, says)
        elif math.isfinite(update.norm):
            self.in_a_row, self._incident = 0, None
        if refusal is not None:
            raise refusal
        return norm

    def _decide(self, finding: Finding) -> tuple[str, str]:
        """Return the action on an abnormal update, and its description for the log and the report.

        Clipping handles a single large gradient, and most trainings continue as before; if one does not, its loss shows
        it at the next update. Skipping costs one batch, so `skip` acts immediately.
        """
        number, patience = self.in_a_row, self.settings.patience
        gradient_alone = finding.kind == GRADIENT_SPIKE
        if self.settings.action == SKIP:
            if number >= patience:
                return STOP, f"skip, then stop: {number} abnormal updates in a row; {ENDS}"
            return SKIP, f"skip: the update is dropped ({number} in a row, {patience} end it)"
        if gradient_alone and number < patience:
            kept = "noted: the loss is within its band, so the update is kept"
            return NOTED, f"{kept} ({number} in a row, stop at {patience})"
        return STOP, f"stop: {f'{number} abnormal updates in a row; ' if gradient_alone else ''}{ENDS}"

    def _seen(self, trainer: Trainer, norm: Any) -> Update:
        """Return the numbers of the update, read from the device at once."""
        names = ("loss", "nll_loss", "ntokens", "sample_size")
        sums = [sum(_scalar(output.get(name, 0)) for output in self._outputs) for name in names]
        device = norm.device if isinstance(norm, torch.Tensor) else "cpu"
        stacked = torch.stack([torch.as_tensor(value, dtype=torch.float64, device=device) for value in (*sums, norm)])
        loss, nll, tokens, size, length = stacked.tolist()
        if not any("nll_loss" in output for output in self._outputs):
            nll = loss
        return Update(
            trainer.get_num_updates() + 1,
            loss / (size or 1.0) / math.log(2),
            nll / (tokens or 1.0) / math.log(2),
            length,
            float(trainer.get_lr()),
            loss_scale(trainer.optimizer) if has_scale(trainer.optimizer) else None,
            tokens,
        )

    def _explain(self, abnormal: Abnormal, train_step: Callable[..., Any], trainer: Trainer, samples: Any) -> Incident:
        """Repeat the same update under the hooks of the recorder and of the search for its place."""
        self._recorder.discard()
        self._recorder.start(trainer, samples)
        try:
            search = repeat(train_step, trainer, samples)
        finally:
            self._recorder.stop()
        values = self._recorder.measured
        rows = self.places.rows(abnormal.update.number, values)
        place = search.place(trainer) or backward_culprit(values) or first_outside(rows)
        return Incident(abnormal.update, abnormal.finding, place, rows, not_finite(trainer.get_model()))

    def _apply(
        self, update: Update, train_step: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any
    ) -> Any:
        """Make a noted update after all: the same once more, bit for bit."""
        self._noted, self._pending = True, update
        try:
            with kept_buffers(trainer.get_model()):
                return train_step(trainer, *args, **kwargs)
        finally:
            self._noted = False

    def _drop(self, trainer: Trainer) -> None:
        """Drop an update as if there had been no batch."""
        scaler = getattr(trainer.optimizer, "scaler", None)
        # Torch's scaler unscales once per update, and must be told that the update is over.
        if isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled():
            scaler.update()
        reset_factor(trainer.optimizer)
        trainer.zero_grad()

    def _tell(self, incident: Incident, update: Update, finding: Finding, says: str) -> None:
        """Log the action and add it to the report, in the first process."""
        incident.steps.append(f"update {update.number}: {says}")
        if self._reports is None:
            return
        self._reports.write(incident, self._history)
        place, stuck = incident.place, incident.finding.kind == PLATEAU
        where = f"; stuck in {place.name} ({place.how})" if place else ""
        reason = finding.reason + where if stuck else with_place(finding.reason, update.learning_rate, place)
        text = f"{reason}; {says}{self._named(incident)}"
        logger.warning("divergence guard: update %d: %s", update.number, text)
        logger.info(record(update.number, text, reason if incident.ends else ""))

    def _named(self, incident: Incident) -> str:
        """Return the path of the report; other processes than the first know only its directory."""
        where = self._directory if self._reports is None else incident.path
        return f"; report: {where}" if where else ""

    def _made(self, trainer: Trainer) -> None:
        """Handle an update that was applied.

        Raises:
            Diverged: the training has failed to train, and the action is to stop.
        """
        # Torch's automatic mixed precision repeats an update inside itself: the repeated one counts.
        update, self._pending = self._pending, None
        if update is None or trainer.get_num_updates() != update.number:
            return
        finding = self.plateau.look(update.number, update.nll, trainer.task, trainer.cfg.dataset.train_subset)
        if finding is None:
            return
        stops = self.settings.action == STOP
        incident = Incident(update, finding, ends=stops)
        if self.places.last is not None:
            entry = self.places.last
            incident.place = weakest(entry.values)
            rows = [row for row in self.places.rows(entry.update, entry.values) if row.kind == GRADIENT]
            incident.rows = sorted(rows, key=lambda row: row.value)
        self._tell(incident, update, finding, f"stop: {ENDS}" if stops else "nothing is done: skip would not help")
        if stops:
            raise Diverged(finding.reason + self._named(incident))


def guard_of(trainer: Trainer) -> Guard | None:
    """Return the guard of a training; ``None`` if there is none."""
    return getattr(trainer, ATTRIBUTE, None)


def _scalar(value: Any) -> Any:
    return value.detach().double().sum() if isinstance(value, torch.Tensor) else float(value)
