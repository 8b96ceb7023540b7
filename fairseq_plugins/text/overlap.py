"""Sentences that the training text shares with a validation or test set: its score then says too much."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

Row = Sequence[Hashable]
"""The sides of one pair."""


def shared_rows(training: Iterable[Row], held_out: Mapping[str, Iterable[Row]]) -> dict[str, int]:
    """How many pairs of each held-out set are in the training text, too, with both sides; blank pairs do not count.

    Only a number for each held-out pair is in memory, and the training text is read once.
    """
    numbers = {name: [hash(tuple(row)) for row in rows if any(row)] for name, rows in held_out.items()}
    wanted = {number for row_numbers in numbers.values() for number in row_numbers}
    trained = wanted.intersection(hash(tuple(row)) for row in training)
    return {name: sum(number in trained for number in row_numbers) for name, row_numbers in numbers.items()}
