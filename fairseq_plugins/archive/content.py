"""What a checkpoint of fairseq holds: entries of the kinds that they should be, sizes that fit, finite weights.

Averages, folds and packages also hold a SHA-256 of their weights, which is compared whenever they are read.
"""

from __future__ import annotations

import hashlib
import os
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.archive import NON_FINITE_ALLOWED
from fairseq_plugins.errors import UserError

KINDS: Mapping[str, tuple[type, ...]] = {
    "model": (dict,),
    "args": (Namespace, Mapping, type(None)),
    "cfg": (Mapping, type(None)),
    "extra_state": (dict,),
    "task_state": (dict,),
    "optimizer_history": (list,),
    "last_optimizer_state": (dict, type(None)),
}
"""Of the entries of a checkpoint that has them; only ``model`` is needed."""
LAYERS = re.compile(r"(encoder|decoder)_layers")
WIDTHS = re.compile(r"(encoder|decoder)_(\w*embed_dim|attention_heads|input_dim|output_dim)|conv_channels")
POSITIONS = re.compile(r"max_(source|target)_positions")
MOST_POSITIONS = 1_000_000
"""A model computes its sinusoids for all of them when it is built; more are believed only if the file has a table."""
CHUNK = 1 << 18
"""Numbers that are looked at together."""
FEW_LAYERS, NARROW = 8, 1024
"""Sizes that cost too little to be doubted."""
SHA256 = "weights_sha256"
"""Entry of ``extra_state``."""


def require_content(path: Path, state: Any) -> None:
    """Check what ``torch.load`` has returned for the file at ``path``.

    Raises:
        UserError: one line with the first entry, setting or weight that is wrong.
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path} is not a fairseq checkpoint: it has no weights under 'model'")
    if problem := next(_problems(state), None):
        raise UserError(f"checkpoint {path} is damaged: {problem}")
    require_finite(path, state["model"])


def require_finite(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not finite, unless ``--allow-non-finite`` is given.

    Raises:
        UserError: names the first of them.
    """
    if os.environ.get(NON_FINITE_ALLOWED):
        return
    for name, weight in weights.items():
        if weight.is_floating_point() and not _is_finite(weight):
            raise UserError(
                f"{path}: the weight {name} is not finite: the training has diverged, or the file is damaged; "
                f"--allow-non-finite, or {NON_FINITE_ALLOWED}=1 in the environment, reads it nevertheless"
            )


def _is_finite(weight: Tensor) -> bool:
    """In parts, since torch makes copies of what it looks at."""
    parts = weight.reshape(-1).split(CHUNK) if weight.is_contiguous() else weight.unbind() if weight.dim() else [weight]
    return all(bool(torch.isfinite(part).all()) for part in parts)


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over names, types, shapes and bytes of ``weights``, in the order of their names.

    It is not the checksum of the file: a checkpoint also stores the duration of its training, so two runs never match.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _problems(state: Mapping[str, Any]) -> Iterator[str]:
    for name, kinds in KINDS.items():
        if name in state and not isinstance(state[name], kinds):
            yield f"its entry '{name}' is a {type(state[name]).__name__}"
    weights = state["model"]
    for name, weight in weights.items():
        if not isinstance(name, str) or not isinstance(weight, Tensor):
            yield f"the weight {name} is no tensor"
    for entry in state.get("optimizer_history") or ():
        updates = entry.get("num_updates") if isinstance(entry, dict) else entry
        if not isinstance(entry, dict) or not (updates is None or (type(updates) is int and updates >= 0)):
            yield "its entry 'optimizer_history' has no number of updates"
    yield from _implausible(state)
    said = (state.get("extra_state") or {}).get(SHA256)
    if said is not None and said != weights_hash(weights):
        yield "its weights are not those that were written (SHA-256), or another program has changed them"


def _settings(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the model, in either of fairseq's styles."""
    config = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    return config if isinstance(config, Mapping) else vars(config) if isinstance(config, Namespace) else {}


def _implausible(state: Mapping[str, Any]) -> Iterator[str]:
    """Sizes that no model with these weights has: building one would take the machine's time and memory."""
    if "fsdp_metadata" in state:  # a part of the weights in one flat tensor
        return
    settings, weights = _settings(state), state["model"]
    widest = max((length for weight in weights.values() for length in weight.shape), default=0)
    limits = (
        (LAYERS, len(weights), FEW_LAYERS, "it has {:,} weights"),
        (WIDTHS, widest, NARROW, "its largest weight has a side of {:,}"),
    )
    for name, value in settings.items():
        for pattern, found, small, why in limits:
            if pattern.fullmatch(str(name)) and isinstance(value, int) and not 0 <= value <= max(found, small):
                yield f"{name} is {value:,}, and {why.format(found)}"
        if POSITIONS.fullmatch(str(name)) and isinstance(value, int) and value > max(MOST_POSITIONS, widest):
            yield f"{name} is {value:,}, and more than {MOST_POSITIONS:,} are not believed"
