"""The guard of one training: judges each update before the weights are changed.

An update is judged where ``Trainer.clip_grad_norm`` is called: the gradients of all processes are added up, the weights
are not changed yet. An abnormal update leaves ``Trainer.train_step`` by its own exception, which none of fairseq's
handlers catches, and the caller gets ``None``, as after an overflow. Loss and norm are the same in every process, so
all decide alike without communication.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged
from fairseq_plugins.observe.guard import ladder, precision, settings
from fairseq_plugins.observe.guard.places import (
    GRADIENT,
    PlaceBands,
    backward_culprit,
    first_outside,
    not_finite,
    weakest,
)
from fairseq_plugins.observe.guard.plateau import PlateauWatch, begins
from fairseq_plugins.observe.guard.rates import Rates
from fairseq_plugins.observe.guard.repeating import (
    LeftUpdate,
    balanced_meters,
    kept_buffers,
    leave_if_repeated,
    repeat,
    reset_factor,
)
from fairseq_plugins.observe.guard.report import DIRECTORY, Incident, Reports
from fairseq_plugins.observe.guard.signals import GRADIENT_SPIKE, NOT_FINITE, PLATEAU, Finding, Signals, Update
from fairseq_plugins.observe.guard.unguarded import with_place
from fairseq_plugins.observe.recorder.criteria import WithDiagnostics
from fairseq_plugins.observe.recorder.gradients import has_scale, loss_scale
from fairseq_plugins.observe.recorder.recording import recorder_of
from fairseq_plugins.pipeline.fairseq_log import guard_record

# Child of fairseq_cli.train's logger, so that --log-file contains these messages.
logger = logging.getLogger("fairseq_cli.train.guard")

ATTRIBUTE = "divergence_guard"
"""Attribute of a trainer that holds its guard."""
HISTORY = 200
"""Maximum number of updates in a report."""


class Abnormal(LeftUpdate):
    """Leaves an update that must not change the weights."""

    def __init__(self, update: Update, finding: Finding, rung: ladder.Rung) -> None:
        super().__init__(finding.reason)
        self.update, self.finding, self.rung = update, finding, rung


class Guard:
    """The guard of one training.

    Args:
        trainer: its trainer.
        criterion: its criterion, which reports the losses.
        chosen: the settings from the flags.

    Attributes:
        rates: the factor on the learning rate.
        full: whether the training has changed from half to full precision.
        in_a_row: abnormal updates since the last normal one.
    """

    def __init__(self, trainer: Trainer, criterion: WithDiagnostics, chosen: settings.Settings) -> None:
        self.settings, self.rates = chosen, Rates()
        self.signals = Signals(chosen.band, _even_loss(trainer.task))
        self.places = PlaceBands()
        self.plateau = PlateauWatch(begins(trainer.cfg.lr_scheduler, chosen.plateau))
        self.full = False
        self.in_a_row = 0
        self._history: deque[Update] = deque(maxlen=HISTORY)
        self._outputs: list[dict[str, Any]] = []
        self._pending: Update | None = None
        self._incident: Incident | None = None
        self._noting: Update | None = None
        self._begun = False
        self._directory = os.path.join(trainer.cfg.checkpoint.save_dir, DIRECTORY)
        self._reports: Reports | None = None
        if trainer.is_data_parallel_master:
            self._reports = Reports(Path(trainer.cfg.checkpoint.save_dir))
        criterion.listeners = (*criterion.listeners, self.hear)
        logger.info("divergence guard: %s; reports go to %s", chosen.action, self._directory)

    def hear(self, result: Any) -> None:
        """Note the criterion's result for one mini-batch."""
        self._outputs.append(result[2])

    def hear_all(self, outputs: list[dict[str, Any]]) -> None:
        """Note the results of all processes for the update; they replace those of this process."""
        self._outputs = list(outputs)

    def step(self, train_step: Callable[..., Any], trainer: Trainer, samples: Any, *args: Any, **kwargs: Any) -> Any:
        """Make one update, or handle an abnormal one."""
        recorder = recorder_of(trainer)
        if not self._begun and recorder is not None:
            recorder.observers.append(self.places)
        self._begun, self._outputs, self._pending = True, [], None
        try:
            with balanced_meters():
                result = train_step(trainer, samples, *args, **kwargs)
        except Abnormal as abnormal:
            if abnormal.rung.applied:
                return self._note(abnormal, train_step, trainer, samples, *args, **kwargs)
            self._act(abnormal, train_step, trainer, samples)
            changes = abnormal.rung.action == settings.FP32
        else:
            self._made(trainer)
            return result
        if not changes:
            self._drop(trainer)
            return None
        precision.to_full(trainer)
        self.full = True
        # Call the outermost wrapper, so that all wrappers of an update see a second one.
        return trainer.train_step(samples, *args, **kwargs)

    def judge(self, clip_grad_norm: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        """``Trainer.clip_grad_norm``, where fairseq itself detects overflows.

        Raises:
            Abnormal: the update must be left.
            Repeated: it was made only for its statistics.
        """
        leave_if_repeated(trainer)
        if self._noting is not None:
            self._pending = self._noting
            return clip_grad_norm(trainer, *args, **kwargs)
        norm, refusal = torch.tensor(math.inf), None
        try:
            norm = clip_grad_norm(trainer, *args, **kwargs)
        except (OverflowError, FloatingPointError) as error:
            refusal = error
        update = self._seen(trainer, norm)
        finding = self.signals.judge(update, minimum_reached=isinstance(refusal, FloatingPointError))
        if finding is not None:
            self._climb(trainer, update, finding)
        elif math.isfinite(update.norm):
            self.in_a_row, self._incident = 0, None
        if refusal is not None:
            raise refusal
        self._pending = update
        return norm

    def _seen(self, trainer: Trainer, norm: Any) -> Update:
        """Return the numbers of the update, read from the device at once."""
        names = ("loss", "nll_loss", "ntokens", "sample_size")
        sums = [sum(_scalar(output.get(name, 0)) for output in self._outputs) for name in names]
        device = norm.device if isinstance(norm, torch.Tensor) else "cpu"
        stacked = torch.stack([torch.as_tensor(one, dtype=torch.float64, device=device) for one in (*sums, norm)])
        loss, nll, tokens, size, length = stacked.tolist()
        if not any("nll_loss" in output for output in self._outputs):
            nll = loss
        update = Update(
            trainer.get_num_updates() + 1,
            loss / (size or 1.0) / math.log(2),
            nll / (tokens or 1.0) / math.log(2),
            length,
            float(trainer.get_lr()),
            None if not has_scale(trainer.optimizer) else loss_scale(trainer.optimizer),
            tokens,
        )
        self._history.append(update)
        return update

    def _climb(self, trainer: Trainer, update: Update, finding: Finding) -> None:
        """Take the next rung for an abnormal update.

        Raises:
            Abnormal: unless the update is applied all the same and has been explained.
        """
        self.in_a_row += 1
        finite = math.isfinite(update.loss) and math.isfinite(update.norm)
        standing = ladder.Standing(
            self.in_a_row, finite, precision.is_half(trainer), self.rates.halvings, finding.kind == GRADIENT_SPIKE
        )
        rung = ladder.decide(self.settings, standing)
        if rung.action == settings.LOWER_LR:
            self.rates.halve(trainer.optimizer)
        if rung.action == ladder.NOTED:
            self.signals.take(update)
        if not rung.applied or self._incident is None:
            raise Abnormal(update, finding, rung)
        recorder = recorder_of(trainer)
        assert recorder is not None
        recorder.correct("learning_rate", float(trainer.get_lr()))
        self._tell(self._incident, update, finding, rung.says)

    def _act(self, abnormal: Abnormal, train_step: Callable[..., Any], trainer: Trainer, samples: Any) -> None:
        """Explain the first abnormal update of several, log the action, and end the training if that is the action.

        Raises:
            Diverged: the training ends.
        """
        update, finding, rung = abnormal.update, abnormal.finding, abnormal.rung
        if self._incident is None or self._is_new_fault(finding):
            self._incident = self._explain(abnormal, train_step, trainer, samples)
        self._incident.ends = rung.action == settings.STOP
        self._tell(self._incident, update, finding, rung.says)
        if rung.action == settings.STOP:
            self._drop(trainer)
            reason = with_place(finding.reason, update.learning_rate, self._incident.place)
            self._end(f"diverged at update {update.number}: {reason}", self._incident)

    def _is_new_fault(self, finding: Finding) -> bool:
        """Return whether a large gradient has now become not finite: the failing module is not known yet."""
        assert self._incident is not None
        return finding.kind == NOT_FINITE and self._incident.finding.kind == GRADIENT_SPIKE

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
        logger.info(guard_record(update.number, text, reason if incident.ends else ""))

    def _named(self, incident: Incident) -> str:
        """Return the path of the report; other processes than the first know only its directory."""
        where = incident.path if self._reports is not None else self._directory
        return f"; report: {where}" if where else ""

    def _end(self, reason: str, incident: Incident) -> None:
        """End the training.

        Raises:
            Diverged: always.
        """
        raise Diverged(reason + self._named(incident))

    def _explain(self, abnormal: Abnormal, train_step: Callable[..., Any], trainer: Trainer, samples: Any) -> Incident:
        """Repeat the same update under the hooks of the recorder and of the search for its place."""
        model, recorder = trainer.get_model(), recorder_of(trainer)
        assert recorder is not None
        recorder.discard()
        recorder.start(trainer, samples)
        try:
            search = repeat(train_step, trainer, samples)
        finally:
            recorder.stop()
        incident = self._incident_of(abnormal, recorder.measured)
        # The last numbers of a failing run are the interesting ones, whatever the interval.
        recorder.finish(trainer, repeated=True)
        incident.weights = not_finite(model)
        forward = search.place(trainer.data_parallel_process_group, trainer.data_parallel_world_size > 1)
        incident.place = forward or incident.place
        return incident

    def _incident_of(self, abnormal: Abnormal, values: Mapping[str, float]) -> Incident:
        """Return the incident from the recorder's numbers of an update."""
        rows = self.places.rows(abnormal.update.number, values)
        return Incident(abnormal.update, abnormal.finding, backward_culprit(values) or first_outside(rows), rows)

    def _note(
        self,
        abnormal: Abnormal,
        train_step: Callable[..., Any],
        trainer: Trainer,
        samples: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Apply an update all the same, repeated bit for bit under the hooks of the recorder."""
        recorder = recorder_of(trainer)
        assert recorder is not None
        self._drop(trainer)
        recorder.discard()
        recorder.start(trainer, samples)
        self._noting = abnormal.update
        try:
            with kept_buffers(trainer.get_model()):
                result = train_step(trainer, samples, *args, **kwargs)
        finally:
            self._noting = None
            recorder.stop()
        self._incident = self._incident_of(abnormal, recorder.measured)
        recorder.finish(trainer)
        self._tell(self._incident, abnormal.update, abnormal.finding, abnormal.rung.says)
        self._made(trainer)
        return result

    def _drop(self, trainer: Trainer) -> None:
        """Drop an update as if there had been no batch."""
        scaler = getattr(trainer.optimizer, "scaler", None)
        # Torch's scaler unscales once per update, and must be told that the update is over.
        if isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled():
            scaler.update()
        reset_factor(trainer.optimizer)
        trainer.zero_grad()

    def _made(self, trainer: Trainer) -> None:
        """Handle an update that was normal, or was applied all the same.

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
        stops = self.settings.action == settings.STOP
        says = f"stop: {ladder.ENDS}" if stops else f"nothing is done: {self.settings.action} would not help"
        incident = Incident(update, finding, ends=stops)
        if self.places.last is not None:
            values = self.places.last.values
            incident.place = weakest(values)
            rows = [row for row in self.places.rows(self.places.last.update, values) if row.kind == GRADIENT]
            incident.rows = sorted(rows, key=lambda row: row.value)
        self._tell(incident, update, finding, says)
        if stops:
            self._end(finding.reason, incident)

    def state(self) -> dict[str, Any]:
        """Return plain numbers for a checkpoint."""
        return {"halvings": self.rates.halvings, "full": self.full, "signals": self.signals.state()}

    def restore(self, state: dict[str, Any], optimizer: Any) -> None:
        """Restore the result of :meth:`state`."""
        self.rates.restore(int(state.get("halvings", 0)), optimizer)
        self.full = bool(state.get("full", False))
        self.signals.restore(state.get("signals", {}))


def guard_of(trainer: Trainer) -> Guard | None:
    """Return the guard of a training; ``None`` if there is none."""
    return getattr(trainer, ATTRIBUTE, None)


def _scalar(value: Any) -> Any:
    return value.detach().double().sum() if isinstance(value, torch.Tensor) else float(value)


def _even_loss(task: Any) -> float:
    """Return the loss in bits of a uniform guess over the target dictionary; 0 for a task without one."""
    dictionary = getattr(task, "target_dictionary", None)
    return math.log2(len(dictionary)) if dictionary is not None and len(dictionary) > 1 else 0.0
