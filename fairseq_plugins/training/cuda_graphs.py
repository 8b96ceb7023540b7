"""``--cuda-graphs``: forward pass, loss and backward pass of a batch are one launch on a GPU.

A deep model launches some 270 kernels for each pair of layers, and a modern GPU is done with each before the host has
launched the next. A CUDA graph records the kernels of one batch; replaying it launches all of them at once. In YAML the
setting is ``common: {cuda_graphs: true}``. Each shape of a batch has a graph of its own:

1. The first batch of a shape is computed as ever.
2. So is the second. Then its kernels are recorded and replayed on the same batch, and the replay must have the same
   loss, gradients, buffers and random state, bit for bit. Without this proof the shape stays eager. Some attention
   kernels add up gradients in another order each time: then a second eager computation shows how much they differ.
3. Every later batch is copied to where the recorded kernels read, and the graph is replayed.

A replay does not run Python, so all that the model computes in Python must be the same for all batches of a shape.
Models, criteria and tasks that are known to do so are listed in :func:`obstacles`; others train eagerly, with a line
that says why. An update in which a module has a hook (recorder, guard, profilers) is eager by itself.

Everything around it is fairseq's: clipping, loss scale, optimizer, several processes, checkpoints.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of a dataclass, not of their names.

import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.configs import CommonConfig
from fairseq.modules import LayerDropModuleList
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from fairseq_cli import train as training_command
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

from fairseq_plugins.core.recorded import (
    NewHooks,
    RecordedGraphs,
    Recording,
    equal,
    follows_updates,
    is_known,
    out_of_memory,
    tensors_of,
    waits_noted,
)
from fairseq_plugins.core.stacks import HAS_PADS
from fairseq_plugins.training.flat_gradients import FlatGradients
from fairseq_plugins.wrapping import replace_settings, replaced, wrap

logger = logging.getLogger(__name__)

ATTRIBUTE = "cuda_graphs"
"""Attribute of a trainer that holds its graphs."""
MOST = 256
"""Number of shapes that get a graph; a graph of 100-100 layers takes some tens of MiB of the driver's memory."""
PATIENCE = 3
"""Number of shapes in a row whose replay has other numbers, after which no shape has a graph."""
NOISE = 4
"""How far the gradient of a parameter may be off in a replay, as a multiple of its noise in two eager computations."""
COUNTS = {"ntokens": 2**31 + 11, "nsentences": 2**31 + 45}
"""Numbers of a batch that its shape does not tell, and their substitutes in a recorded batch."""
BACKENDS = ("legacy_ddp", "no_c10d")
CRITERIA = (CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion)
OTHER_CRITERIA = tuple(f"fairseq.criterions.label_smoothed_cross_entropy_{kind}" for kind in ("with", "latency"))

StepResult = tuple[Tensor, Any, dict[str, Any]]
"""Loss, sample size and logging output, as ``FairseqTask.train_step`` returns them."""


@dataclass
class CommonConfigWithGraphs(CommonConfig):
    """fairseq's common settings, CUDA graphs, and compiled layers."""

    # Unset is off, but for `fairseq-deep run`, which chooses by the machine.
    cuda_graphs: Optional[bool] = field(
        default=None,
        metadata={
            "help": "on a GPU, record the kernels of each batch shape once and launch them together afterwards: the "
            "same losses and gradients, meant for deep models and small batches; --length-grid keeps shapes few"
        },
    )
    compile_layers: bool = field(
        default=False,
        metadata={
            "help": "on a GPU, train with layers that torch.compile has made: fewer kernels, other rounding and other "
            "random numbers of dropout"
        },
    )


def obstacles(cfg: Any, task: FairseqTask, model: nn.Module, criterion: nn.Module, gpus: int) -> list[str]:
    """Return the obstacles to graphs in a training on so many GPUs, each with its flag."""
    backend = cfg.distributed_training.ddp_backend
    known_criterion = isinstance(criterion, CRITERIA) and not criterion.__module__.startswith(OTHER_CRITERIA)
    foreign = {type(m) for m in model.modules() if not is_known(type(m))}
    reasons = {
        "there is no GPU": not gpus,
        f"--ddp-backend {backend} (legacy_ddp works)": gpus > 1 and backend not in BACKENDS,
        "--checkpoint-activations": getattr(cfg.model, "checkpoint_activations", False),
        "--encoder-layerdrop or --decoder-layerdrop": any(
            m.p > 0 for m in model.modules() if isinstance(m, LayerDropModuleList)
        ),
        "--quant-noise-pq": any(getattr(cfg.model, f"quant_noise_{kind}", 0) for kind in ("pq", "scalar")),
        "--quantization-config-path": cfg.common.quantization_config_path is not None,
        "--pipeline-model-parallel": cfg.distributed_training.pipeline_model_parallel,
        f"--criterion {cfg.criterion._name}": not known_criterion,
        "--report-accuracy": getattr(criterion, "report_accuracy", False),
        f"--task {cfg.task._name} has an update of its own": type(task).train_step is not FairseqTask.train_step
        or getattr(task, "uses_ema", False),
        f"unknown modules: {', '.join(sorted(f'{kind.__module__}.{kind.__name__}' for kind in foreign))}": foreign,
    }
    return [reason for reason, stands in reasons.items() if stands]


def with_fixed_counts(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a batch with :data:`COUNTS` in place of its own."""
    return {**sample, **{name: number for name, number in COUNTS.items() if name in sample}}


def shape_of(sample: dict[str, Any]) -> Hashable:
    """Return all that a graph of ``sample`` takes for granted."""
    batch = with_fixed_counts(sample)
    return repr(tree_map_only(Tensor, lambda x: (tuple(x.shape), x.dtype, getattr(x, HAS_PADS, None)), batch))


class State:
    """Copies of all that forward and backward pass change: gradients, buffers, and the random state of the GPU."""

    def __init__(self, gradients: list[Tensor], buffers: list[Tensor]) -> None:
        self._gradients, self._live = len(gradients), [*gradients, *buffers]
        self._copies, self._random = [value.clone() for value in self._live], torch.cuda.get_rng_state()

    def restore(self) -> None:
        """Set gradients, buffers and random state to the copies."""
        with torch.no_grad():
            torch._foreach_copy_(self._live, self._copies)
        torch.cuda.set_rng_state(self._random)

    def equals(self, other: "State") -> bool:
        """Return whether two states are the same bit for bit; NaN equals NaN, as after an overflow."""
        pairs = [*zip(self._copies, other._copies, strict=True), (self._random, other._random)]
        return all(map(equal, *zip(*pairs, strict=True)))

    def is_near(self, other: "State", again: "State", cut: Callable[[list[Tensor]], list[Tensor]]) -> bool:
        """Return whether ``other`` has other gradients alone, of a noise that ``again`` has, too.

        ``cut`` makes the gradients of parameters of the buffers; each may differ by :data:`NOISE` times its own noise.
        """
        ours, theirs, noisy = (cut(one._copies[: self._gradients]) for one in (self, other, again))
        apart, noise = distances(ours, theirs), distances(ours, noisy)
        rounding = torch.stack([one.abs().max().float() * torch.finfo(one.dtype).eps for one in ours])
        near = noise.any() and apart.isfinite().all() and (apart <= NOISE * torch.maximum(noise, rounding)).all()
        rest, others = ([*one._copies[self._gradients :], one._random] for one in (self, other))
        return bool(near) and all(map(equal, rest, others))


def distances(first: list[Tensor], second: list[Tensor]) -> Tensor:
    """Return the largest difference of the numbers in each pair of tensors, in float32; 0 where both are NaN."""
    same = [(a == b) | (a.isnan() & b.isnan()) for a, b in zip(first, second, strict=True)]
    differences = zip(torch._foreach_sub(first, second), same, strict=True)
    return torch.stack([apart.abs().masked_fill(alike, 0).max().float() for apart, alike in differences])


class Graphs(RecordedGraphs):
    """The updates of a training; takes the place of its task's ``train_step``.

    Args:
        trainer: the training, whose optimizer is built.

    Attributes:
        graphs: the recording of each shape, and where its kernels read a batch.
        counts: of ``batches``, and of those ``replayed``.
    """

    def __init__(self, trainer: Trainer) -> None:
        super().__init__("--cuda-graphs: the training", PATIENCE)
        self.graphs: dict[Hashable, tuple[Recording, list[Tensor]]] = {}
        self.counts: Counter[str] = Counter()
        self._trainer = trainer
        self._train_step = trainer.task.train_step
        self._params = list(getattr(trainer.optimizer, "fp16_params", trainer.optimizer.params))
        self._flat: FlatGradients  # there is one after the first batch
        self._seen: set[Hashable] = set()
        self._eager_shapes: set[Hashable] = set()
        scaler = getattr(trainer.optimizer, "scaler", None)
        self._scaler = scaler if isinstance(scaler, DynamicLossScaler) else None
        self._scale = torch.zeros((), device="cuda")
        self._seconds, self._bytes = 0.0, 0
        modules = (trainer.get_model(), trainer.get_criterion())
        all_modules = [m for module in modules for m in module.modules()]
        self._following = [m for m in all_modules if follows_updates(type(m))]
        self._buffers = [buffer for module in modules for buffer in module.buffers()]
        self._hooked = NewHooks(all_modules)
        self._fixed = [*self._params, *self._buffers]
        self._places: list[int] = []

    def __call__(
        self, sample: Any, model: Any, criterion: Any, optimizer: Any, update_num: int, **named: Any
    ) -> StepResult:
        """``FairseqTask.train_step``."""
        settings = {"model": model, "criterion": criterion, "optimizer": optimizer, "update_num": update_num, **named}
        compute: Callable[[Any], StepResult] = functools.partial(self._train_step, **settings)
        vars(model).pop("train", None)  # see leave_mode
        self.counts["batches"] += 1
        if not self._seen:
            result = compute(sample)
            self._flat = FlatGradients(self._params, optimizer, model)
            self._places = [tensor.data_ptr() for tensor in self._fixed]
            self._seen.add(shape_of(sample))
            return result
        if not self.stopped and [tensor.data_ptr() for tensor in self._fixed] != self._places:
            self.stop("the weights of the model have moved")
        if self.stopped or named.get("ignore_grad") or self._hooked:
            return self._eager(compute, sample)
        for module in self._following:
            module.set_num_updates(update_num)
        if (shape := shape_of(sample)) in self.graphs:
            self.counts["replayed"] += 1
            result = self._replay(*self.graphs[shape], sample)
            for listener in getattr(self._trainer.get_criterion(), "listeners", ()):
                listener(result)
            return result
        if shape in self._seen and shape not in self._eager_shapes and len(self.graphs) < MOST:
            return self._eager_and_recorded(compute, sample, shape)
        self._seen.add(shape)
        return self._eager(compute, sample)

    def _eager(self, compute: Callable[[Any], StepResult], sample: Any) -> StepResult:
        """Compute eagerly; without graphs from now on, if their memory is missed."""
        random, fresh = torch.cuda.get_rng_state(), self._flat.fresh
        self._flat.fresh = False
        self._flat.attach()
        try:
            return compute(sample)
        except RuntimeError as error:
            if not (fresh and self.graphs and out_of_memory(error)):
                raise
        self.stop("out of memory")
        self._flat.zero()
        self._flat.attach()
        torch.cuda.set_rng_state(random)
        return compute(sample)

    def _eager_and_recorded(self, compute: Callable[[Any], StepResult], sample: Any, shape: Hashable) -> StepResult:
        """Compute eagerly, then record a graph and compare its replay."""
        begun, reserved = time.perf_counter(), torch.cuda.memory_reserved()
        state = functools.partial(State, self._flat.buffers, self._buffers)
        before = state()
        # Without its graph, whose nodes would tie the recorded backward pass to the stream of this one.
        with waits_noted() as waits:
            result = tree_map_only(Tensor, Tensor.detach, self._eager(compute, sample))
        after = state()

        def fixed(value: Tensor) -> Tensor:
            copy = value.clone()
            setattr(copy, HAS_PADS, getattr(value, HAS_PADS, None))
            return copy

        place = tree_map_only(Tensor, fixed, with_fixed_counts(sample))
        inputs = tensors_of(place)

        def is_same(recording: Recording) -> bool:
            before.restore()
            (ours, form), (theirs, other) = map(tree_flatten, (result, self._replay(recording, inputs, sample)))
            if form != other or not all(map(equal, ours, theirs)):
                return False
            replayed = state()
            if after.equals(replayed):
                return True
            before.restore()
            self._alone(compute, sample)
            return after.is_near(replayed, state(), self._flat.cut)

        recording = self.record(lambda: self._alone(compute, place), is_same, waits)
        after.restore()
        if recording is not None:
            self.graphs[shape] = recording, inputs
        else:
            self._eager_shapes.add(shape)
        self._seconds += time.perf_counter() - begun
        self._bytes += max(0, torch.cuda.memory_reserved() - reserved)
        return result

    def _replay(self, recording: Recording, inputs: list[Tensor], sample: Any) -> StepResult:
        """Compute a batch by its graph."""
        # The kernels write to the buffers: to look at thousands of gradients takes a host longer than all else.
        if not self._flat.read_whole:
            self._flat.attach()
        self._flat.fresh = False
        torch._foreach_copy_(inputs, tensors_of(sample))
        if self._scaler is not None:
            self._scale.fill_(self._scaler.loss_scale)
        recording.graph.replay()
        if hasattr(self._trainer.optimizer, "_needs_sync"):
            self._trainer.optimizer._needs_sync = True
        given = {number: sample[name] for name, number in COUNTS.items() if name in sample}
        # Copies: graphs share memory, and the next one may overwrite this one's results.
        result: StepResult = tree_map(
            lambda x: x.clone() if isinstance(x, Tensor) else given.get(x, x), recording.result
        )
        return result

    def _alone(self, compute: Callable[[Any], StepResult], sample: Any) -> StepResult:
        """Compute a batch without the work besides its kernels in each update.

        Autograd hands over its gradients, which are added up here: few kernels, not one a parameter. The loss scale of
        ``--fp16``, which a graph would freeze, is a number on the GPU.
        """
        scale = {} if self._scaler is None else {"loss_scale": self._scale}
        gradients = [p.grad for p in self._params]
        for p in self._params:
            p.grad = None
        try:
            with (
                replaced(self._trainer.get_model(), set_num_updates=lambda num_updates: None),
                replaced(self._trainer.get_criterion(), listeners=()),
                replaced(self._scaler, **scale),
            ):
                result: StepResult = tree_map_only(Tensor, Tensor.detach, compute(sample))
            made = [(p.grad, view) for p, view in zip(self._flat.params, self._flat.views, strict=True)]
            pairs = [(gradient, view) for gradient, view in made if gradient is not None]
            if len(pairs) != sum(p.grad is not None for p in self._params):
                raise RuntimeError("not every batch has gradients of the same parameters")
            torch._foreach_add_([view for _, view in pairs], [gradient for gradient, _ in pairs])
            return result
        finally:
            for p, gradient in zip(self._params, gradients, strict=True):
                p.grad = gradient

    def forget(self) -> None:
        """Drop all graphs and free their memory."""
        self.graphs.clear()
        torch.cuda.empty_cache()

    def summary(self) -> str:
        """Return how much of the training was replayed."""
        batches, replayed = max(self.counts["batches"], 1), self.counts["replayed"]
        few = "; --length-grid 1.15 makes fewer shapes" if len(self._seen) > MOST else ""
        return (
            f"{len(self.graphs)} shapes of {len(self._seen)} seen, {100 * replayed / batches:.1f} % of {batches} "
            f"batches replayed, {self._seconds:.1f} s for recording, {self._bytes / 2**20:.0f} MiB{few}"
        )


def in_the_way(trainer: Trainer) -> list[str]:
    """Return the :func:`obstacles` of a training."""
    gpus = trainer.data_parallel_world_size if trainer.cuda else 0
    return obstacles(trainer.cfg, trainer.task, trainer.get_model(), trainer.get_criterion(), gpus)


def attach(build: Callable[[Trainer], None], trainer: Trainer) -> None:
    """``Trainer._build_optimizer`` that puts graphs into the training's updates, if the user asks for them."""
    build(trainer)
    if not getattr(trainer.cfg.common, "cuda_graphs", False):
        return
    vars(trainer.task).pop("train_step", None)
    if reasons := in_the_way(trainer):
        logger.warning("--cuda-graphs has no effect: %s", "; ".join(reasons))
        return
    graphs = Graphs(trainer)
    setattr(trainer, ATTRIBUTE, graphs)
    trainer.task.train_step = graphs
    if trainer.cfg.optimizer._name == "adam" and not getattr(trainer.optimizer, "has_flat_params", False):
        logger.info("--optimizer fused_adam is faster with --cuda-graphs: adam updates each parameter by itself")


def summarise(train: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any) -> Any:
    """``fairseq_cli.train.train``, an epoch, after which the log says what was replayed so far."""
    result = train(cfg, trainer, *args)
    graphs: Graphs | None = getattr(trainer, ATTRIBUTE, None)
    if graphs is not None:
        logger.info("cuda graphs: %s", graphs.summary())
    return result


def leave_mode(train_step: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step`` that does not set the mode of thousands of modules, if that of the model is right.

    A replay has the mode that was recorded, and ``FairseqTask.train_step`` sets the mode before it computes eagerly.
    """
    own = vars(trainer.model)
    if hasattr(trainer, ATTRIBUTE) and trainer.model.training:
        own["train"] = lambda: None
    try:
        return train_step(trainer, *args, **kwargs)
    finally:
        own.pop("train", None)


replace_settings("common", CommonConfigWithGraphs)
wrap(Trainer, "_build_optimizer", attach, order=-10)
wrap(training_command, "train", summarise, order=10)
wrap(Trainer, "train_step", leave_mode, order=40)
