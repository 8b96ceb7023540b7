"""What every recipe is made of: a recipe, a file that it trains, and the groups of settings that papers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Settings = Mapping[str, Mapping[str, Any]]


class Noted(NamedTuple):
    """A value with the comment behind it."""

    value: Any
    comment: str


def not_stated(value: Any, source: str) -> Noted:
    """A value that the paper does not give."""
    return Noted(value, f"not stated; {source}")


def merged(*parts: Settings) -> dict[str, dict[str, Any]]:
    """The groups of all ``parts``; a later part replaces single values of an earlier one."""
    result: dict[str, dict[str, Any]] = {}
    for part in parts:
        for group, values in part.items():
            result[group] = {**result.get(group, {}), **values}
    return result


@dataclass(frozen=True)
class Recipe:
    """How a paper trains on one corpus.

    Attributes:
        corpus: what the text is.
        data: how it is prepared.
        source: where the recipe is read.
        settings: the groups of the file, all but ``model``.
        model: settings of the model that are not the method's.
        gpus: how many GPUs the paper has, 0 where it does not say.
        update_freq: batches of each GPU before an update.
        end: the last part of the names of its files where another recipe has the same models.
        base_init: the initialisation that its plain models start from; the method's own where this is None.
        remarks: what a reader of each file must know.
    """

    corpus: str
    data: str
    source: str
    settings: Settings
    model: Mapping[str, Any]
    gpus: int
    update_freq: int
    end: str = ""
    base_init: str | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Config:
    """One file: a model, trained by a recipe."""

    recipe: Recipe
    method: str
    encoder: int
    decoder: int
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    sweep: Mapping[str, str] = field(default_factory=dict)
    family: str = "_transformer"
    remarks: tuple[str, ...] = ()


def size(width: int, ffn: int, heads: int) -> dict[str, int]:
    """Width, feed-forward width and heads of both stacks."""
    names = {"embed_dim": width, "ffn_embed_dim": ffn, "attention_heads": heads}
    return {f"{stack}_{name}": value for name, value in names.items() for stack in ("encoder", "decoder")}


SMALL, BASE, BIG = size(512, 1024, 4), size(512, 2048, 8), size(1024, 4096, 16)


def rates(dropout: Any, attention: Any, activation: Any) -> dict[str, Any]:
    """The three dropouts."""
    return {"dropout": dropout, "attention_dropout": attention, "activation_dropout": activation}


def translation(source: str, target: str) -> Settings:
    """The task, from one language to another."""
    return {"task": {"_name": "translation", "data": "???", "source_lang": source, "target_lang": target}}


AS_DE = "as for En-De"
LABEL_SMOOTHING = {"criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1}}
LOG = {"log_format": "json", "log_interval": 100}


def adam(betas: str) -> dict[str, Any]:
    """The group ``optimizer``."""
    return {"_name": "adam", "adam_betas": betas}


def inverse_sqrt(warmup: int, start: float = 1e-7) -> dict[str, Any]:
    """The group ``lr_scheduler``."""
    return {"_name": "inverse_sqrt", "warmup_updates": warmup, "warmup_init_lr": start}


def small(source: str, target: str, interval: int, batch: int, between: int, kept: int) -> Settings:
    """Our own trainings on one core: log after ``interval`` updates, save after ``between`` and keep ``kept``."""
    never = 10**6
    return merged(
        translation(source, target),
        LABEL_SMOOTHING,
        {
            "common": {"seed": 1, "cpu": True, "log_format": "json", "log_interval": interval},
            "criterion": {"_name": "label_smoothed_cross_entropy_with_diagnostics", "divergence_action": "stop"},
            "optimizer": {**adam("(0.9, 0.98)"), "_name": "fused_adam"},
            "dataset": {
                "max_tokens": batch,
                "num_workers": 0,
                "validate_interval_updates": between,
                "validate_interval": never,
            },
            "checkpoint": {
                "save_interval_updates": between,
                "keep_interval_updates": kept,
                "save_interval": never,
                "no_epoch_checkpoints": True,
            },
            "generation": {"beam": 5, "lenpen": 1.0, "max_len_a": 1.5, "max_len_b": 10},
        },
    )


def plain(value: Any) -> Any:
    """A value without its comment."""
    return value.value if isinstance(value, Noted) else value
