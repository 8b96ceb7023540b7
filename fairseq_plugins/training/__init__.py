"""Optimizers, schedules, losses and precisions of a training.

* Optimizers: RAdam, LAMB, Muon with Adam, and fairseq's Adam by lists of tensors (``foreach_adam``, equal bit for bit)
  and by torch's fused kernel (``fused_adam``, equal to rounding).
* A schedule without warm-up, and losses by sentence and chunked, without a tensor of all logits.
* Batches of few shapes, mixed precision, and rates for kinds of parameters.

Each module registers itself with fairseq when it is imported: optimizers, schedule and losses by name, so that a flag
(``--optimizer radam``) and a YAML key (``optimizer._name: radam``) mean the same; they also work with stock
architectures. The others wrap what builds a training.
"""

from fairseq_plugins.training import (  # noqa: F401
    chunked_loss,
    compiled_layers,
    cuda_graphs,
    fast_adam,
    host_pads,
    inverse_sqrt_without_warmup,
    lamb,
    length_grid,
    loss_by_sentence,
    mixed_precision,
    muon,
    param_groups,
    radam,
)
