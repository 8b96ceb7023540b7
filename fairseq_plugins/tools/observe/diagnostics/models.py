"""Subjects of measurement: a freshly initialised method at the user's sizes, or the model of a checkpoint."""

import copy
import dataclasses
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor

from fairseq_plugins.checkpoints.fold import build, own_options, task_for
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.initialisation import StackWeights, initialise
from fairseq_plugins.core.method import METHODS, Axis, Stack
from fairseq_plugins.core.model import TRANSLATION, DeepTransformerModel
from fairseq_plugins.core.sub_layers import sites_of
from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.integrity import architecture, num_updates, read_checkpoint
from fairseq_plugins.tools.observe.diagnostics.batches import Batch

# Hooks must see every layer exactly once: no LayerDrop, and no activation checkpointing.
OBSERVABLE: Mapping[str, Any] = {
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "checkpoint_activations": False,
    "offload_activations": False,
}
NO_DROPOUT: Mapping[str, float] = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
FRAMES = 4
"""Frames of speech for each word: the usual two convolutions halve their number twice."""


@dataclass(frozen=True)
class Subject:
    """A model that can be built any number of times; ``label`` names it in tables and plots.

    Attributes:
        options: flat configuration, completed by its architecture.
        task: with the dictionaries.
        weights: those of a checkpoint; None for an untrained model.
        updates: number of updates of a checkpoint, if recorded.
        kind: its class.
    """

    label: str
    options: Namespace
    task: Any
    weights: Mapping[str, Tensor] | None = None
    updates: int | None = None
    kind: type[DesignedModel] = DeepTransformerModel

    @property
    def depths(self) -> tuple[str, ...]:
        """Names of the settings that have the depth of each stack, the first one read first."""
        return tuple(f"{stack.value}_layers" for stack in self.kind.family.stacks)

    def build(self, seed: int = 1, **changes: Any) -> Any:
        """Build a new model, not calibrated, in evaluation mode; weights without a checkpoint are drawn by ``seed``.

        Raises UserError: a problem of the configuration, after ``changes`` of :attr:`options`.
        """
        options = copy.deepcopy(self.options)
        vars(options).update({**OBSERVABLE, **changes})
        torch.manual_seed(seed)
        model: Any = self.kind.build_model(options, self.task)
        if self.weights is not None:
            model.load_state_dict(dict(self.weights), strict=True)
        return model.eval()

    def ready(self, batch: Batch, seed: int = 1, **changes: Any) -> Any:
        """Build a new model in evaluation mode, calibrated on ``batch`` if its initialisation needs data."""
        model = self.build(seed, **changes)
        model.train()
        model.see_first_batch(*batch.inputs)
        return model.eval()

    def reads(self, pairs: Batch, seed: int) -> Batch:
        """Return sentence pairs as the model reads them: a language model only the target, speech as noise."""
        if Stack.ENCODER not in self.kind.family.stacks:
            pad = self.task.target_dictionary.pad()
            return pairs._replace(source=pairs.source[:, :0], lengths=pairs.previous.ne(pad).sum(dim=1))
        if (features := getattr(self.options, "input_feat_per_channel", None)) is None:
            return pairs
        shape = len(pairs.source), FRAMES * pairs.source.size(1), features * self.options.input_channels
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        return pairs._replace(source=noise, lengths=torch.full_like(pairs.lengths, shape[1]))


def of_options(name: str, given: Namespace, task: Any, label: str = "") -> Subject:
    """Return an untrained method, as a translation model, or architecture ``name`` with the settings ``given``.

    Raises UserError: the name is unknown, or its configuration has a problem.
    """
    arch = name + TRANSLATION.suffix if name in METHODS else name
    kind: Any = ARCH_MODEL_REGISTRY.get(arch, object)
    if not issubclass(kind, DesignedModel):
        stock = f"'{name}' is not an architecture of this package; name a method"
        raise UserError(stock if name in ARCH_MODEL_REGISTRY else unknown_name("method", name, METHODS))
    known = kind.config_class.__dataclass_fields__
    if unread := [flag(key) for key, value in vars(given).items() if value not in (None, False) and key not in known]:
        raise UserError(f"{name} has no setting {', '.join(unread)}")
    options = Namespace(**{**kind.family.fallbacks, **vars(given), "arch": arch})
    ARCH_CONFIG_REGISTRY[arch](options)
    return Subject(label or name, options, task, kind=kind)


def of_checkpoint(path: Path, task: Any = None) -> Subject:
    """Return the model of a checkpoint; ``task`` has the dictionaries of a corpus, by default as many made-up words.

    Raises UserError: it cannot be read, is not a model of this package, or has another number of words.
    """
    state = read_checkpoint(path)
    options = own_options(state, path, DesignedModel)
    kind: Any = ARCH_MODEL_REGISTRY[architecture(state)]
    weights: Mapping[str, Tensor] = state["model"]
    own = task_for(weights)
    build(vars(options), weights, own, path, kind)
    task = task or own
    (source, target), known = ((len(words.source_dictionary), len(words.target_dictionary)) for words in (own, task))
    if known != (source, target):
        raise UserError(
            f"{path}: the model has {source} source and {target} target words, the corpus has {known[0]} and {known[1]}"
        )
    float32 = {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
    return Subject(path.stem, options, task, float32, num_updates(state), kind)


def depends_on_depth(subject: Subject) -> bool:
    """Return whether a layer of the first stack would be different in a deeper model.

    If not, the lower layers of a deep model are a shallow model.
    """
    _, stack = subject.build(**dict.fromkeys(subject.depths, 1)).stacks()[0]
    design, fingerprints = stack.design, set()
    for layers in (2, 31):
        deeper = dataclasses.replace(design, encoder_layers=layers, decoder_layers=layers)
        layer = copy.deepcopy(stack.layers[0])
        torch.manual_seed(1)
        with torch.no_grad():
            initialise(StackWeights([layer], branches=5 * layers), deeper)
            ones = torch.ones(1, 1, design.width)
            # The first layer of a deep model may be an exception.
            residuals = deeper.parts[Axis.RESIDUAL].build(sites_of(layer), 2, deeper).values()
            values = [*layer.state_dict().values(), *(residual(ones, 2 * ones, 4 * ones) for residual in residuals)]
            fingerprints.add(sum(float(value.double().abs().sum()) for value in values))
    return len(fingerprints) > 1
