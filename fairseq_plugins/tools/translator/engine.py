"""What every engine has: how it is asked to search, and the batches and the device that it takes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.decoder import Hypothesis

FAIRSEQ, CTRANSLATE2, AUTO = "fairseq", "ctranslate2", "auto"
BATCH = 4000
"""The default of the most tokens of a batch."""
Tokens = Sequence[str]


@dataclass(frozen=True)
class SearchOptions:
    """How sentences are translated.

    Args:
        search: values of :data:`~fairseq_plugins.tools.translator.package.SEARCH`.
        batch: most tokens of a batch, pads among them; None lets the engine choose.
        device: ``auto``, ``cpu`` or ``gpu``.
        processes: how many do this at the same time on this machine.
    """

    search: Mapping[str, Any]
    batch: int | None = None
    device: str = "auto"
    processes: int = 1


class Engine(Protocol):
    """What searches; ``label`` names it with its precision and device."""

    label: str

    def search(self, sentences: Sequence[Tokens], nbest: int = 1, alignment: bool = False) -> list[list[Hypothesis]]:
        """Return the best translations of each sentence, none of which is empty, in order."""

    def score(self, sentences: Sequence[Tokens], targets: Sequence[Tokens]) -> list[list[float]]:
        """Return the log-probability (natural log) of each token of each target, and of its end."""


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Put sentences of like length together, the longest first; yields their places in ``lengths``, each once.

    A batch has at most ``most`` tokens, pads among them; a longer sentence is a batch of its own.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def gpu_of(options: SearchOptions, devices: int) -> int | None:
    """Return which of so many GPUs this process uses; None for the CPU."""
    if options.device == "gpu" and not devices:
        raise UserError("--device gpu: this engine finds no GPU; legal here: auto, cpu")
    if options.device == "cpu" or not devices:
        return None
    # () in a process that is no worker, (1) in the first worker.
    identity = multiprocessing.current_process()._identity
    return (identity[0] - 1 if identity else 0) % devices
