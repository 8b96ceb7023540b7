"""What an analysis is, what it is told, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fairseq_plugins.core.method import Stack
from fairseq_plugins.observe.diagnostics.batches import Batch
from fairseq_plugins.observe.diagnostics.models import Subject
from fairseq_plugins.observe.diagnostics.plots import Figure
from fairseq_plugins.observe.diagnostics.tables import Table

STACKS = tuple(stack.value for stack in Stack)
BY_SUB_LAYER = "sub-layer, from the bottom"
BY_LAYER = "layer, from the bottom"
"""Labels of axes, which count from 1 as the papers do."""


@dataclass(frozen=True)
class Settings:
    """What every analysis is told.

    Attributes:
        batch: makes the sentences for a model.
        seed: of weights and dropout.
        progress: told before each model.
        made_up: whether the sentences are.
    """

    batch: Callable[[Subject], Batch]
    seed: int = 1
    progress: Callable[[str], None] = lambda text: None
    made_up: bool = True


@dataclass(frozen=True)
class Result:
    """What an analysis has found: tables for files, figures, and one small table for the terminal."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    shown: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Option:
    """A flag that one analysis reads.

    Attributes:
        name: of the flag, and of the argument of :attr:`Analysis.run` that it becomes.
        default: its value where the user says none.
        help: what it is, for ``--help``.
        type: makes the value of what the user writes.
        metavar: stands for the value in ``--help``.
    """

    name: str
    default: Any
    help: str
    type: Callable[[str], Any] = str
    metavar: str = "N"


@dataclass(frozen=True)
class Analysis:
    """One analysis; each has a file of its own, and a line in :mod:`~fairseq_plugins.observe.diagnostics.analyses`.

    Attributes:
        name: as the user calls it.
        summary: one line of the help.
        paper: whose figure or table it is.
        run: measures models, or reads trainings; besides them and the settings it takes each option by name.
        sentences: size of a batch unless the user says otherwise.
        length: tokens of a sentence, likewise.
        of: what it compares.
        options: flags of its own.
    """

    name: str
    summary: str
    paper: str
    run: Callable[..., Result]
    sentences: int = 16
    length: int = 25
    of: Literal["models", "trainings"] = "models"
    options: tuple[Option, ...] = ()


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def ratio(value: float | None, of: float | None) -> float | None:
    """``value`` by ``of``; None where one is missing or ``of`` is zero."""
    return value / of if value is not None and of else None


def each(subjects: Sequence[Subject], settings: Settings, measure: Callable[[Any, Batch], Any]) -> dict[str, Any]:
    """``measure`` of every model with its batch, by label; dropout draws the same numbers for each."""
    found = {}
    for number, subject in enumerate(subjects, start=1):
        settings.progress(f"{subject.label} ({number} of {len(subjects)})")
        batch = settings.batch(subject)
        model = subject.ready(batch, settings.seed)
        torch.manual_seed(settings.seed)
        found[subject.label] = measure(model, batch)
        del model  # before the next one is built
    return found
