"""The recorder inside fairseq's trainer: it watches every N-th update and passes its entry to observers.

Gradients are measured where ``Trainer.clip_grad_norm`` is called: added over the processes, divided by the sample size,
not yet clipped. Observers get the entry after the update, even if the update ends the training.

fairseq's meters, which TensorBoard and Weights & Biases read, have all numbers under ``diagnostics/``, a thousand at 60
layers; progress bars that print lines omit them.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.progress_bar import BaseProgressBar, JsonProgressBar
from fairseq.trainer import Trainer

from fairseq_plugins.core.sub_layers import SubLayer, sub_layers
from fairseq_plugins.tools.observe.recorder import activations, gradients
from fairseq_plugins.tools.observe.recorder.activations import BRANCH_GRADIENT, ActivationWatch
from fairseq_plugins.tools.observe.recorder.criteria import WithDiagnostics
from fairseq_plugins.tools.observe.recorder.entries import NAME, Entry, EntryFile
from fairseq_plugins.wrapping import wrap

logger = logging.getLogger(__name__)

Observer = Callable[[Entry], None]
ATTRIBUTE = "diagnostics_recorder"
"""Attribute of a trainer that holds its recorder."""
PREFIX = "diagnostics/"


class Recorder:
    """Recorder of one training.

    Attributes:
        observers: called with every entry, in order, at the end of an update; all processes have the same entries. To
            watch a run, append to this list of ``recorder_of(trainer)``.
        measured: the numbers of the current update; empty until they are measured.
    """

    def __init__(self, trainer: Trainer, criterion: WithDiagnostics) -> None:
        self.observers: list[Observer] = []
        self._criterion = criterion
        self._file: EntryFile | None = None
        where = ""
        if trainer.is_data_parallel_master:
            self._file = EntryFile(Path(trainer.cfg.checkpoint.save_dir) / NAME)
            self.observers.append(self._file)
            where = f" to {self._file.path}"
        model = trainer.get_model()
        self._sub_layers = sub_layers(model)
        self._norms = activations.norms(model)
        self._begun = False
        self._watch: ActivationWatch | None = None
        self._hooks = contextlib.ExitStack()
        self._update = 0
        self.measured: Mapping[str, float] = {}
        what = f"gradients, {len(self._sub_layers)} residual connections and {len(self._norms)} norms"
        interval = criterion.settings.diagnostics_interval
        logger.info("the recorder writes every %d updates%s: %s", interval, where, what)

    def is_due(self, made: int) -> bool:
        """Return whether the update after ``made`` updates is recorded; the first call cuts the file there."""
        if not self._begun and self._file is not None:
            self._file.resume(made)
        self._begun = True
        return (made + 1) % self._criterion.settings.diagnostics_interval == 0

    def start(self, trainer: Trainer, samples: Any) -> None:
        """Watch the next forward and backward passes."""
        # Torch's automatic mixed precision repeats an update from inside of it after an overflow.
        self.finish(trainer, repeated=True)
        empty = [sample is None or len(sample) == 0 for sample in samples]
        self._watch = ActivationWatch(trainer.get_model(), self._sub_layers, self._norms, empty)
        self._hooks.enter_context(self._watch.hooked())
        self._criterion.watch = self._watch

    def stop(self) -> None:
        """Remove every hook, if there are any."""
        self._criterion.watch = self._watch = None
        self._hooks.close()

    def measure(self, trainer: Trainer) -> None:
        """Read the numbers of the update, and stop watching. Every process calls this at the same time."""
        if (watch := self._watch) is not None:
            self.stop()
            self._update = trainer.get_num_updates() + 1
            self.measured = values_of(trainer, watch, self._sub_layers)

    def finish(self, trainer: Trainer, repeated: bool = False) -> None:
        """Pass the entry, if there is one, to the observers."""
        self.stop()
        values, self.measured = self.measured, {}
        if values:
            made = not repeated and trainer.get_num_updates() == self._update
            entry = Entry(self._update, made and math.isfinite(values["gradient_norm"]), values)
            # fairseq's meters have the latest value of each name.
            for name, value in values.items():
                metrics.log_scalar(PREFIX + name, value, weight=0, priority=10000)
            for observer in self.observers:
                observer(entry)


def without_diagnostics(format_stats: Callable[..., Any], bar: Any, stats: Any, *args: Any, **kwargs: Any) -> Any:
    """``_format_stats``, which only the progress bars that print lines call, without the recorder's names."""
    kept = {name: value for name, value in stats.items() if PREFIX not in name}
    return format_stats(bar, kept, *args, **kwargs)


def values_of(trainer: Trainer, watch: ActivationWatch, connections: list[SubLayer]) -> dict[str, float]:
    """Return all numbers of an update whose gradients are ready for clipping; the same in every process."""
    device = next(trainer.get_model().parameters()).device
    vector = watch.vector(device)
    if trainer.data_parallel_world_size > 1:
        vector = distributed_utils.all_reduce(vector, group=trainer.data_parallel_process_group)
    loss_sum, size, *sums = vector.tolist()
    scale = gradients.loss_scale(trainer.optimizer)
    values = {"loss": loss_sum / (size or 1.0) / math.log(2), "learning_rate": float(trainer.get_lr())}
    if scale is not None:
        values["loss_scale"] = scale
    modules, factor = (trainer.get_model(), trainer.get_criterion()), gradients.remaining_factor(trainer.optimizer)
    values.update(gradients.gradient_norms(modules, factor))
    values.update(activations.scales(connections))
    values.update(activations.history_weights(trainer.get_model()))
    for name, squares, count in watch.read(sums):
        by = (scale or 1.0) * (size or 1.0)
        values[name] = math.sqrt(squares) / by if name.endswith(BRANCH_GRADIENT) else math.sqrt(squares / count)
    return values


def recorder_of(trainer: Trainer) -> Recorder | None:
    """Return the recorder of a training; ``None`` if nothing is recorded."""
    return getattr(trainer, ATTRIBUTE, None)


def attach(
    build: Callable[..., None], trainer: Trainer, cfg: Any, task: Any, model: Any, criterion: Any, quantizer: Any = None
) -> None:
    """``Trainer.__init__`` that gives the trainer a recorder if the criterion has one."""
    build(trainer, cfg, task, model, criterion, quantizer)
    if isinstance(criterion, WithDiagnostics):
        setattr(trainer, ATTRIBUTE, Recorder(trainer, criterion))


def step(train_step: Callable[..., Any], trainer: Trainer, samples: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step``, watched if the update is to be recorded."""
    recorder = recorder_of(trainer)
    if recorder is None or not recorder.is_due(trainer.get_num_updates()):
        return train_step(trainer, samples, *args, **kwargs)
    recorder.start(trainer, samples)
    try:
        return train_step(trainer, samples, *args, **kwargs)
    finally:
        recorder.finish(trainer)


def clip(clip_grad_norm: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.clip_grad_norm``, before which the gradients are measured."""
    recorder = recorder_of(trainer)
    if recorder is not None:
        recorder.measure(trainer)
    return clip_grad_norm(trainer, *args, **kwargs)


wrap(Trainer, "__init__", attach, order=10)
wrap(Trainer, "train_step", step, order=20)
wrap(Trainer, "clip_grad_norm", clip, order=10)
for bar in (BaseProgressBar, JsonProgressBar):
    wrap(bar, "_format_stats", without_diagnostics)
