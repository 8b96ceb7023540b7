"""A translation model as plain data: its flat configuration, its weights by name, its dictionaries."""

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from torch import Tensor

from fairseq_plugins.checkpoints.fold import own_options
from fairseq_plugins.core.architectures import method_preset
from fairseq_plugins.core.config import STOCK
from fairseq_plugins.core.method import Stack
from fairseq_plugins.core.model import MODEL_NAME, DeepTransformerModel
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import architecture, owners_of
from fairseq_plugins.records import parse_json

STOCK_NORMS = {True: "pre", False: "post"}
"""Values of ``--norm-position`` by fairseq's ``normalize_before``; plain parts have the keys of stock models."""
OF_TRAINING = {"checkpoint_activations": False, "offload_activations": False}
TIED = "tied"


def options_of(state: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the flat configuration of the model in a checkpoint; a stock Transformer becomes a model of this package.

    Raises UserError: the checkpoint has another kind of model.
    """
    arch = architecture(dict(state))
    if ARCH_MODEL_REGISTRY.get(arch) in (TransformerModel, TransformerModelBase):
        stored = (state.get("cfg") or {}).get("model") or state["args"]
        stored = vars(stored) if isinstance(stored, Namespace) else stored
        # Settings of the training are left out.
        stock = {name: stored[name] for name in (field[0] for field in STOCK) if name in stored}
        state = {"cfg": {"model": as_ours(stock)}}
    elif not issubclass(ARCH_MODEL_REGISTRY.get(arch, object), DeepTransformerModel):
        raise UserError(f"{path}: '{arch}' is not a Transformer for translation, of this package or of fairseq")
    return {**vars(own_options(state, path)), **OF_TRAINING}


def as_ours(stock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of our model that computes the same as fairseq's Transformer of these settings."""
    norms = [STOCK_NORMS[bool(stock.get(f"{stack.value}_normalize_before"))] for stack in Stack]
    return {**method_preset(None), **stock, "_name": MODEL_NAME, "norm_position": ",".join(norms)}


def dictionaries_of(source: Path, target: Path) -> Any:
    """Return a stand-in for the task in a model's builder: two dictionaries, one object if the files are equal."""
    first = Dictionary.load(str(source))
    same = source.read_bytes() == target.read_bytes()
    return SimpleNamespace(source_dictionary=first, target_dictionary=first if same else Dictionary.load(str(target)))


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights as safetensors, in their own types; a tensor with several names is written once."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    owners = owners_of(weights)
    tied = {name: owner for name, owner in owners.items() if owner != name}
    whole = {name: weights[name].detach() for name in owners if name not in tied}
    untied = {name: weight.clone(memory_format=torch.contiguous_format) for name, weight in whole.items()}
    try:
        save_file(untied, str(path), metadata={TIED: json.dumps(tied)})
    except SafetensorError as error:  # also for an error of the system
        raise UserError(f"{path}: cannot be written: {error}") from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a file of :func:`write_weights`; any other file is a UserError."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as stored:
            weights = {name: stored.get_tensor(name) for name in stored.keys()}
            tied = parse_json((stored.metadata() or {}).get(TIED, "{}"), {str: str})
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not weights of a package: {error}") from None
    if unknown := set(tied.values()).difference(weights):
        raise UserError(f"{path}: not weights of a package: tied to '{min(unknown)}', which is none of them")
    return {**weights, **{name: weights[owner] for name, owner in tied.items()}}
