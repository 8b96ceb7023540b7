"""Training: optimizers, a schedule, losses, exclusion from weight decay, advice about settings, memory given back.

The first three kinds register themselves with fairseq by name, so that a flag (``--optimizer radam``) and a YAML key
(``optimizer._name: radam``) mean the same; they also work with stock architectures. The next two look at the model.
"""

from __future__ import annotations


def register() -> None:
    """Register everything in this package with fairseq; a second call does nothing."""
    from fairseq_plugins.training import (  # noqa: F401  (registers the optimizers, the schedule and the losses)
        advice,
        foreach_adam,
        fused_adam,
        inverse_sqrt_without_warmup,
        lamb,
        loss_by_sentence,
        loss_in_chunks,
        mixed_precision,
        radam,
        returned_memory,
        weight_decay,
    )

    weight_decay.install()
    mixed_precision.install()
    advice.install()
    returned_memory.install()
