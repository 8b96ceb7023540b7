"""Training as in the papers: optimizers, a schedule, a loss, exclusion from weight decay, and advice about settings.

The first three register themselves with fairseq by name, so that a flag (``--optimizer radam``) and a YAML key
(``optimizer._name: radam``) mean the same; they also work with stock architectures. The others look at the model.
"""

from __future__ import annotations


def register() -> None:
    """Register everything in this package with fairseq; a second call does nothing."""
    from fairseq_plugins.training import (  # noqa: F401  (registers the optimizers, the schedule and the loss)
        advice,
        inverse_sqrt_without_warmup,
        lamb,
        loss_by_sentence,
        radam,
        weight_decay,
    )

    weight_decay.install()
    advice.install()
