"""``--cuda-graphs``: forward pass, loss and backward pass of a batch are one launch on a GPU.

A deep model launches some 270 kernels for each pair of layers, and a modern GPU is done with each before the host has
launched the next. A CUDA graph records the kernels of one batch; replaying it launches all of them at once::

    fairseq-train data-bin --user-dir "$(python -m fairseq_plugins)" --arch admin_transformer --bf16 --cuda-graphs ...

or in YAML ``common: {cuda_graphs: true}``. Each shape of a batch has a graph of its own:

1. The first batch of a shape is computed as ever.
2. So is the second. Then its kernels are recorded and replayed on the same batch, and the replay must have the same
   loss, gradients, buffers and random state, bit for bit. Without this proof the shape stays eager.
3. Every later batch is copied to where the recorded kernels read, and the graph is replayed.

A replay does not run Python, so whatever the model computes in Python must be the same for all batches of a shape.
Models, criteria and tasks that are known to do so are listed in :func:`obstacles`; others train eagerly, with a line
that says why. An update in which a module has a hook (recorder, guard, profilers) is eager by itself.

Everything around it is fairseq's: clipping, loss scale, optimizer, several processes, checkpoints.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of a dataclass, not of their names.

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.configs import CommonConfig
from fairseq.modules import LayerDropModuleList
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from fairseq_cli import train as training_command
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_map_with_path

from fairseq_plugins.core.recorded import (
    Inputs,
    NewHooks,
    equal,
    follows_updates,
    is_known,
    out_of_memory,
    recording,
    tensors_of,
    waits_noted,
    why,
)
from fairseq_plugins.core.stacks import HAS_PADS
from fairseq_plugins.patches.wrapping import replace_settings, wrap
from fairseq_plugins.training.flat_gradients import FlatGradients

logger = logging.getLogger(__name__)

ATTRIBUTE = "cuda_graphs"
"""Attribute of a trainer that holds its graphs."""
MOST = 256
"""Number of shapes that get a graph; a graph of 100-100 layers takes some tens of MiB of the driver's memory."""
COUNTS = {"ntokens": 2**31 + 11, "nsentences": 2**31 + 45}
"""Numbers of a batch that its shape does not tell, and what takes their place in a recorded batch."""
BACKENDS = ("legacy_ddp", "no_c10d")
CRITERIA = (CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion)

Result = tuple[Tensor, Any, dict[str, Any]]
"""Loss, sample size and logging output, as ``FairseqTask.train_step`` returns them."""


@dataclass
class CommonConfigWithGraphs(CommonConfig):
    """fairseq's common settings, CUDA graphs, and compiled layers."""

    cuda_graphs: bool = field(
        default=False,
        metadata={
            "help": "on a GPU, record the kernels of each batch shape once and launch them together afterwards: the "
            "same numbers, several times faster where models are deep or batches small"
        },
    )
    compile_layers: bool = field(
        default=False,
        metadata={
            "help": "on a GPU, train with layers that torch.compile has made: fewer kernels, other rounding and other "
            "random numbers of dropout"
        },
    )


def obstacles(trainer: Trainer) -> list[str]:
    """Return what keeps the updates of a training out of graphs, each with its flag."""
    cfg, model, criterion = trainer.cfg, trainer.get_model(), trainer.get_criterion()
    several = trainer.data_parallel_world_size > 1
    backend = cfg.distributed_training.ddp_backend
    known_criterion = isinstance(criterion, CRITERIA) and not criterion.__module__.startswith(
        (
            "fairseq.criterions.label_smoothed_cross_entropy_with",
            "fairseq.criterions.label_smoothed_cross_entropy_latency",
        )
    )
    foreign = {type(m) for m in model.modules() if not is_known(type(m))}
    found = {
        "there is no GPU": not trainer.cuda,
        f"--ddp-backend {backend} (legacy_ddp works)": several and backend not in BACKENDS,
        "--checkpoint-activations": getattr(cfg.model, "checkpoint_activations", False),
        "--encoder-layerdrop or --decoder-layerdrop": any(
            m.p > 0 for m in model.modules() if isinstance(m, LayerDropModuleList)
        ),
        "--quant-noise-pq": any(getattr(cfg.model, f"quant_noise_{kind}", 0) for kind in ("pq", "scalar")),
        "--quantization-config-path": trainer.quantizer is not None,
        "--pipeline-model-parallel": trainer.pipeline_model_parallel,
        f"--criterion {cfg.criterion._name}": not known_criterion,
        "--report-accuracy": getattr(criterion, "report_accuracy", False),
        f"--task {cfg.task._name} has an update of its own": type(trainer.task).train_step is not FairseqTask.train_step
        or getattr(trainer.task, "uses_ema", False),
        f"unknown modules: {', '.join(sorted(f'{kind.__module__}.{kind.__name__}' for kind in foreign))}": foreign,
    }
    return [reason for reason, stands in found.items() if stands]


def detached(value: Any) -> Any:
    """Return a value, a tensor without its history."""
    return value.detach() if isinstance(value, Tensor) else value


def name_of(path: tuple[Any, ...]) -> str:
    """Return the innermost key of a place in nested lists and dictionaries."""
    return str(getattr(path[-1], "key", "")) if path else ""


def shape_of(sample: dict[str, Any]) -> Hashable:
    """Return all that a graph of ``sample`` takes for granted."""

    def described(path: Any, value: Any) -> Any:
        if isinstance(value, Tensor):
            return tuple(value.shape), value.dtype, getattr(value, HAS_PADS, None)
        return None if name_of(path) in COUNTS else value

    return repr(tree_map_with_path(described, sample))


class Graph(NamedTuple):
    """The recorded kernels of one shape.

    Attributes:
        graph: torch's graph.
        inputs: where the kernels read a batch.
        result: what they write; numbers of a batch are those of ``COUNTS``.
        kept: whatever else they read.
    """

    graph: Any
    inputs: list[Tensor]
    result: Result
    kept: list[Tensor]


class State:
    """Copies of all that forward and backward pass change: gradients, buffers, and the random state of the GPU."""

    def __init__(self, live: list[Tensor]) -> None:
        self._live, self._copies, self._random = live, [value.clone() for value in live], torch.cuda.get_rng_state()

    def restore(self) -> None:
        """Set everything back."""
        with torch.no_grad():
            torch._foreach_copy_(self._live, self._copies)
        torch.cuda.set_rng_state(self._random)

    def equals(self, other: "State") -> bool:
        """Return whether two states are the same bit for bit; NaN equals NaN, as after an overflow."""
        pairs = [*zip(self._copies, other._copies, strict=True), (self._random, other._random)]
        return all(map(equal, *zip(*pairs, strict=True)))


class Graphs:
    """The updates of a training; takes the place of its task's ``train_step``.

    Args:
        trainer: the training, whose optimizer is built.

    Attributes:
        graphs: the graph of each shape.
        counts: of ``batches``, and of those ``replayed``.
        stopped: why the training goes on without graphs; empty while it does not.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.graphs: dict[Hashable, Graph] = {}
        self.counts: Counter[str] = Counter()
        self.stopped = ""
        self._trainer = trainer
        self._train_step = trainer.task.train_step
        self._params = list(getattr(trainer.optimizer, "fp16_params", trainer.optimizer.params))
        self._flat: FlatGradients  # there is one after the first batch
        self._seen: set[Hashable] = set()
        self._pool: Any = None
        self._scale: Tensor | None = None
        self._seconds, self._bytes = 0.0, 0
        modules = (trainer.get_model(), trainer.get_criterion())
        self._modules = [m for module in modules for m in module.modules()]
        self._following = [m for m in self._modules if follows_updates(type(m))]
        self._buffers = [buffer for module in modules for buffer in module.buffers()]
        self._hooked = NewHooks(self._modules)
        self._places: list[int] = []

    def __call__(
        self, sample: Any, model: Any, criterion: Any, optimizer: Any, update_num: int, **named: Any
    ) -> Result:
        """``FairseqTask.train_step``."""

        def compute(batch: Any) -> Result:
            result: Result = self._train_step(batch, model, criterion, optimizer, update_num, **named)
            return result

        self.counts["batches"] += 1
        if not self._seen:
            result = compute(sample)
            self._flat = FlatGradients(self._params, optimizer, model)
            self._places = self._places_now()
            self._seen.add(shape_of(sample))
            return result
        if not self.stopped and self._places_now() != self._places:
            self._stop("the weights of the model have moved")
        if self.stopped or named.get("ignore_grad") or self._hooked:
            return self._eager(compute, sample)
        for module in self._following:
            module.set_num_updates(update_num)
        return self._by_shape(compute, sample, shape_of(sample))

    def _by_shape(self, compute: Callable[[Any], Result], sample: Any, shape: Hashable) -> Result:
        """Compute by a graph of this shape; make one if this is the second batch of the shape."""
        if shape in self.graphs:
            self.counts["replayed"] += 1
            result = self._replay(self.graphs[shape], sample)
            for listener in getattr(self._trainer.get_criterion(), "listeners", ()):
                listener(result)
            return result
        if shape in self._seen and len(self.graphs) < MOST:
            return self._eager_and_recorded(compute, sample, shape)
        self._seen.add(shape)
        return self._eager(compute, sample)

    def _places_now(self) -> list[int]:
        return [tensor.data_ptr() for tensor in (*self._params, *self._buffers)]

    def _eager(self, compute: Callable[[Any], Result], sample: Any) -> Result:
        """Compute eagerly; without graphs from now on, if their memory is missed."""
        random, fresh = torch.cuda.get_rng_state(), self._flat.fresh
        self._flat.fresh = False
        try:
            return compute(sample)
        except RuntimeError as error:
            if not (fresh and self.graphs and out_of_memory(error)):
                raise
        self._stop("out of memory")
        self._flat.zero()
        torch.cuda.set_rng_state(random)
        return compute(sample)

    def _eager_and_recorded(self, compute: Callable[[Any], Result], sample: Any, shape: Hashable) -> Result:
        """Compute eagerly, then record a graph and compare its replay."""
        begun, reserved = time.perf_counter(), torch.cuda.memory_reserved()
        live = [*self._flat.buffers, *self._buffers]
        before = State(live)
        # Without its graph, whose nodes would tie the recorded backward pass to the stream of this one.
        with waits_noted() as waits:
            result = tree_map(detached, self._eager(compute, sample))
        if waits:
            self._stop(waits[0])
            return result
        after = State(live)
        try:
            graph = self._record(compute, sample)
            before.restore()
            replayed = self._replay(graph, sample)
            reason = "" if _same(result, replayed) and after.equals(State(live)) else "a replay has other numbers"
        except Exception as error:  # whatever torch, the driver or a module says: the training goes on without graphs
            reason = why(error)
        after.restore()
        if reason:
            self._stop(reason)
        else:
            self.graphs[shape] = graph
        self._seconds += time.perf_counter() - begun
        self._bytes += max(0, torch.cuda.memory_reserved() - reserved)
        return result

    def _record(self, compute: Callable[[Any], Result], sample: Any) -> Graph:
        """Record the kernels of a batch; none of them runs."""

        def fixed(path: Any, value: Any) -> Any:
            if not isinstance(value, Tensor):
                return COUNTS.get(name_of(path), value)
            copy = value.clone()
            if hasattr(value, HAS_PADS):
                setattr(copy, HAS_PADS, getattr(value, HAS_PADS))
            return copy

        recorded = tree_map_with_path(fixed, sample)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph, inputs = torch.cuda.CUDAGraph(), Inputs()
        capturing = recording(graph, self._pool)
        with self._alone(), self._scale_on_device(), self._gradients_taken() as take, capturing, inputs:
            result = compute(recorded)
            take()
        return Graph(graph, tensors_of(recorded), tree_map(detached, result), inputs.kept())

    def _replay(self, graph: Graph, sample: Any) -> Result:
        """Compute a batch by its graph."""
        self._flat.attach()
        self._flat.fresh = False
        torch._foreach_copy_(graph.inputs, tensors_of(sample))
        optimizer = self._trainer.optimizer
        if self._scale is not None:
            self._scale.fill_(optimizer.scaler.loss_scale)
        graph.graph.replay()
        if hasattr(optimizer, "_needs_sync"):
            optimizer._needs_sync = True
        given = {number: sample[name] for name, number in COUNTS.items() if name in sample}

        def of_sample(value: Any) -> Any:
            # A copy: graphs share memory, and the next one may overwrite this one's results.
            return value.clone() if isinstance(value, Tensor) else given.get(value, value)

        result: Result = tree_map(of_sample, graph.result)
        return result

    @contextlib.contextmanager
    def _gradients_taken(self) -> Iterator[Callable[[], None]]:
        """Let autograd hand over its gradients, and yield what adds them up: few kernels, not one a parameter."""
        before = [p.grad for p in self._params]
        for p in self._params:
            p.grad = None

        def take() -> None:
            made = [(p.grad, view) for p, view in zip(self._flat.params, self._flat.views, strict=True)]
            pairs = [(gradient, view) for gradient, view in made if gradient is not None]
            if len(pairs) != sum(p.grad is not None for p in self._params):
                raise RuntimeError("not every batch has gradients of the same parameters")
            torch._foreach_add_([view for _, view in pairs], [gradient for gradient, _ in pairs])

        try:
            yield take
        finally:
            for p, gradient in zip(self._params, before, strict=True):
                p.grad = gradient

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Leave out of the recorded batch what happens beside its kernels in each update."""
        model, criterion = self._trainer.get_model(), self._trainer.get_criterion()
        listeners = getattr(criterion, "listeners", ())
        model.set_num_updates = lambda num_updates: None
        if listeners:
            criterion.listeners = ()
        try:
            yield
        finally:
            del model.set_num_updates
            if listeners:
                criterion.listeners = listeners

    @contextlib.contextmanager
    def _scale_on_device(self) -> Iterator[None]:
        """Replace the loss scale of ``--fp16``, which a graph would freeze, by a number on the GPU."""
        scaler = getattr(self._trainer.optimizer, "scaler", None)
        if not isinstance(scaler, DynamicLossScaler):
            yield
            return
        if self._scale is None:
            self._scale = torch.tensor(float(scaler.loss_scale), device="cuda")
        scale, scaler.loss_scale = scaler.loss_scale, self._scale
        try:
            yield
        finally:
            scaler.loss_scale = scale

    def _stop(self, reason: str) -> None:
        """Train on without graphs, and say why."""
        self.stopped = reason
        self.graphs.clear()
        self._pool = None
        torch.cuda.empty_cache()
        logger.warning("--cuda-graphs: the training goes on without graphs: %s", reason)

    def summary(self) -> str:
        """Return how much of the training was replayed."""
        batches = max(self.counts["batches"], 1)
        return (
            f"{len(self.graphs)} shapes of {len(self._seen)} seen, {100 * self.counts['replayed'] / batches:.1f} % of "
            f"{batches} batches replayed, {self._seconds:.1f} s for recording, {self._bytes / 2**20:.0f} MiB"
        )


def _same(first: Result, second: Result) -> bool:
    """Return whether two results are the same, tensors bit for bit."""
    (ours, form), (theirs, other) = tree_flatten(first), tree_flatten(second)
    return bool(form == other) and all(map(equal, ours, theirs))


def wanted(trainer: Trainer) -> bool:
    """Return whether the user asks for graphs, and nothing stands in the way."""
    return getattr(trainer.cfg.common, "cuda_graphs", False) and not obstacles(trainer)


def attach(build: Callable[[Trainer], None], trainer: Trainer) -> None:
    """``Trainer._build_optimizer`` that puts graphs into the training's updates, if the user asks for them."""
    build(trainer)
    if not getattr(trainer.cfg.common, "cuda_graphs", False):
        return
    vars(trainer.task).pop("train_step", None)
    if reasons := obstacles(trainer):
        logger.warning("--cuda-graphs has no effect: %s", "; ".join(reasons))
        return
    graphs = Graphs(trainer)
    setattr(trainer, ATTRIBUTE, graphs)
    trainer.task.train_step = graphs


def summarise(train: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any) -> Any:
    """``fairseq_cli.train.train``, an epoch, after which the log says what was replayed so far."""
    result = train(cfg, trainer, *args)
    graphs: Graphs | None = getattr(trainer, ATTRIBUTE, None)
    if graphs is not None:
        logger.info("cuda graphs: %s", graphs.summary())
    return result


def install() -> None:
    """Add the setting to fairseq's, and wrap what builds a training; a second call changes nothing."""
    replace_settings("common", CommonConfigWithGraphs)
    wrap(Trainer, "_build_optimizer", attach, order=-10)
    wrap(training_command, "train", summarise, order=10)
