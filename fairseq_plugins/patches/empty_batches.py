"""With several processes and ``--update-freq``, the gradient of the last update of an epoch is too large.

Where the batches of an epoch do not divide, the last ones of some processes are empty. fairseq then counts no token of
such a process, also of its other batches in this update, although their gradients are in the sum that it divides by the
tokens. Its logs miss them, too. Not reported upstream so far.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fairseq.trainer import Trainer


def leave_out_empty(train_step: Callable[..., Any], trainer: Trainer, samples: Sequence[Any], **kwargs: Any) -> Any:
    """``Trainer.train_step`` without the empty batches of a process, or with one if all are empty."""
    # Sharded parameters are gathered for each batch, so there every process needs as many.
    if not trainer.is_fsdp:
        samples = [sample for sample in samples if sample] or samples[:1]
    return train_step(trainer, samples, **kwargs)


WRAPPED = ((Trainer, "train_step", leave_out_empty, 50),)
