"""Definition of an analysis, its settings and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fairseq_plugins.core.method import Stack
from fairseq_plugins.observe.diagnostics.batches import Batch
from fairseq_plugins.observe.diagnostics.models import Subject
from fairseq_plugins.observe.diagnostics.tables import Table
from fairseq_plugins.plots import Figure

STACKS = tuple(stack.value for stack in Stack)
BY_SUB_LAYER = "sub-layer, from the bottom"
BY_LAYER = "layer, from the bottom"
"""Labels of axes, which count from 1 as the papers do."""


@dataclass(frozen=True)
class Settings:
    """Settings of every analysis.

    Attributes:
        batch: makes the sentences for a model.
        seed: seed of weights and dropout.
        progress: called before each model.
        made_up: whether the sentences are made up.
    """

    batch: Callable[[Subject], Batch]
    seed: int = 1
    progress: Callable[[str], None] = lambda text: None
    made_up: bool = True


@dataclass(frozen=True)
class Result:
    """Result of an analysis: tables for files, figures, and one small table for the terminal."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    shown: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Option:
    """A flag that one analysis reads.

    Attributes:
        name: name of the flag, and of its argument of :attr:`Analysis.run`.
        default: its value if unset.
        help: description for ``--help``.
        type: converts the user's text.
        metavar: stands for the value in ``--help``.
    """

    name: str
    default: Any
    help: str
    type: Callable[[str], Any] = str
    metavar: str = "N"


@dataclass(frozen=True)
class Analysis:
    """One analysis; each has its own file, and a line in :mod:`~fairseq_plugins.observe.diagnostics.analyses`.

    Attributes:
        name: name for the user.
        summary: one line of the help.
        paper: the source of its figure or table.
        run: measures models, or reads trainings; besides them and the settings it takes each option by name.
        sentences: default size of a batch.
        length: default length of a sentence in tokens.
        of: the kind of its subjects.
        options: its own flags.
    """

    name: str
    summary: str
    paper: str
    run: Callable[..., Result]
    sentences: int = 16
    length: int = 25
    of: Literal["models", "trainings"] = "models"
    options: tuple[Option, ...] = ()


def ratio(value: float | None, of: float | None) -> float | None:
    """Return ``value`` / ``of``; None if one is missing or ``of`` is zero."""
    return value / of if value is not None and of else None


def each(subjects: Sequence[Subject], settings: Settings, measure: Callable[[Any, Batch], Any]) -> dict[str, Any]:
    """Call ``measure`` on every model with its batch, by label; dropout draws the same numbers for each."""
    found = {}
    for number, subject in enumerate(subjects, start=1):
        settings.progress(f"{subject.label} ({number} of {len(subjects)})")
        batch = settings.batch(subject)
        model = subject.ready(batch, settings.seed)
        torch.manual_seed(settings.seed)
        found[subject.label] = measure(model, batch)
        del model  # before the next one is built
    return found
