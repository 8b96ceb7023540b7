"""What an analysis is, what it is told, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairseq_plugins.diagnostics.batches import Batch
from fairseq_plugins.diagnostics.models import Subject
from fairseq_plugins.diagnostics.plots import Figure
from fairseq_plugins.diagnostics.tables import Table


@dataclass(frozen=True)
class Settings:
    """What an analysis is told.

    Attributes:
        batch: makes the sentences for a model.
        seed: of weights and dropout.
        step: how the weights are changed, one of :data:`output_change.STEPS`.
        deepest: largest number of encoder layers in a curve by depth.
        models: how many models, each of weights of its own, a mean is taken over.
        progress: told before each model.
        made_up: whether the sentences are.
    """

    batch: Callable[[Subject], Batch]
    seed: int = 1
    step: str = "random"
    deepest: int = 100
    models: int = 8
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
class Analysis:
    """One line of the registry.

    Attributes:
        name: as the user calls it.
        summary: one line of the help.
        paper: whose figure or table it is.
        run: measures models, or reads trainings.
        sentences: size of a batch unless the user says otherwise.
        length: tokens of a sentence, likewise.
        of: what it compares.
    """

    name: str
    summary: str
    paper: str
    run: Callable[[Sequence[Any], Settings], Result]
    sentences: int = 16
    length: int = 25
    of: Literal["models", "trainings"] = "models"
