"""How the papers train: an optimizer, a schedule, and parameters that are not decayed.

Each registers itself with fairseq by name, so that a flag (``--optimizer radam``) and a YAML key (``optimizer._name:
radam``) mean the same. Nothing here depends on the model: stock architectures may use the optimizer and the schedule,
too.
"""

from __future__ import annotations


def register() -> None:
    """Make everything in this package known to fairseq; a second call does nothing."""
    from fairseq_plugins.training import (  # noqa: F401  (registers the optimizer and the schedule)
        inverse_sqrt_without_warmup,
        radam,
        weight_decay,
    )

    weight_decay.install()
