"""Subjects of measurement: a freshly initialised method at the user's sizes, or the model of a checkpoint."""

from __future__ import annotations

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

from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
from fairseq_plugins.checkpoints.fold import build_original, made_up_task
from fairseq_plugins.core.initialisation import StackWeights, initialise
from fairseq_plugins.core.method import METHODS, Axis, Stack
from fairseq_plugins.core.model import TRANSLATION, DeepTransformerModel
from fairseq_plugins.core.sub_layers import sites_of
from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.observe.diagnostics.batches import Batch

# Hooks must see every layer exactly once: no LayerDrop, and no activation checkpointing.
OBSERVABLE: Mapping[str, Any] = {
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "checkpoint_activations": False,
    "offload_activations": False,
}
NO_DROPOUT: Mapping[str, float] = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
DEPTHS = ("encoder_layers", "decoder_layers")


@dataclass(frozen=True)
class Subject:
    """A model that can be built, any number of times.

    Attributes:
        label: its name in tables and plots.
        options: flat configuration, completed by its architecture.
        task: with the dictionaries.
        weights: those of a checkpoint; None for an untrained model.
        updates: number of updates of a checkpoint, if recorded.
    """

    label: str
    options: Namespace
    task: Any
    weights: Mapping[str, Tensor] | None = None
    updates: int | None = None

    def build(self, seed: int = 1, **changes: Any) -> DeepTransformerModel:
        """Build a new model, not calibrated, in evaluation mode.

        Args:
            seed: seed of its weights, unless they come from a checkpoint.
            changes: settings that differ from :attr:`options`.

        Raises:
            UserError: a problem of the configuration.
        """
        options = copy.deepcopy(self.options)
        vars(options).update({**OBSERVABLE, **changes})
        torch.manual_seed(seed)
        model: DeepTransformerModel = DeepTransformerModel.build_model(options, self.task)
        if self.weights is not None:
            model.load_state_dict(dict(self.weights), strict=True)
        return model.eval()

    def ready(self, batch: Batch, seed: int = 1, **changes: Any) -> DeepTransformerModel:
        """Build a new model in evaluation mode, calibrated on ``batch`` if its initialisation needs data."""
        model = self.build(seed, **changes)
        model.train()
        model.see_first_batch(*batch.inputs)
        return model.eval()


def find_architecture(name: str) -> str:
    """Return the architecture for the name of a method or an architecture.

    Raises:
        UserError: there is none, or it is not a translation model of this package.
    """
    if name in METHODS:
        return name + TRANSLATION.suffix
    if issubclass(ARCH_MODEL_REGISTRY.get(name, object), DeepTransformerModel):
        return name
    if name in ARCH_MODEL_REGISTRY:
        raise UserError(f"'{name}' is not a translation architecture of this package; name a method")
    raise UserError(unknown_name("method", name, METHODS))


def of_options(name: str, said: Namespace, task: Any, label: str = "") -> Subject:
    """Return an untrained method or architecture ``name`` with the settings that the user has ``said``.

    Raises:
        UserError: the method is unknown, or its configuration has a problem.
    """
    arch = find_architecture(name)
    options = Namespace(**{**vars(said), "arch": arch})
    ARCH_CONFIG_REGISTRY[arch](options)
    return Subject(label or name, options, task)


def of_checkpoint(path: Path, task: Any = None) -> Subject:
    """Return the model of a checkpoint.

    Args:
        path: the checkpoint.
        task: with the dictionaries of a corpus; by default made-up words, as many as the model has.

    Raises:
        UserError: it cannot be read, is not a translation model of this package, or has another number of words.
    """
    state = read_checkpoint(path)
    _, options = build_original(state, path)
    weights: Mapping[str, Tensor] = state["model"]
    source, target = (len(weights[f"{stack.value}.embed_tokens.weight"]) for stack in Stack)
    if task is None:
        task = made_up_task(source, target)
    known = (len(task.source_dictionary), len(task.target_dictionary))
    if known != (source, target):
        raise UserError(
            f"{path}: the model has {source} source and {target} target words, the corpus has {known[0]} and {known[1]}"
        )
    float32 = {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
    return Subject(path.stem, options, task, float32, num_updates(state))


def depends_on_depth(subject: Subject) -> bool:
    """Return whether an encoder layer would be different in a deeper model.

    If not, the lower layers of a deep model are a shallow model.
    """
    model = subject.build(**dict.fromkeys(DEPTHS, 1))
    design, fingerprints = model.encoder.design, set()
    for layers in (2, 31):
        deeper = dataclasses.replace(design, encoder_layers=layers, decoder_layers=layers)
        layer = copy.deepcopy(model.encoder.layers[0])
        torch.manual_seed(1)
        with torch.no_grad():
            initialise(StackWeights([layer], branches=5 * layers), deeper)
            ones = torch.ones(1, 1, design.width)
            # The first layer of a deep model may be an exception.
            residuals = deeper.parts[Axis.RESIDUAL].build(sites_of(layer), 2, deeper).values()
            values = [*layer.state_dict().values(), *(residual(ones, 2 * ones, 4 * ones) for residual in residuals)]
            fingerprints.add(sum(float(value.double().abs().sum()) for value in values))
    return len(fingerprints) > 1
