"""Monkeypatches for bugs of fairseq, one module per bug, named after the bug.

``WRAPPED`` of a module are the arguments of :func:`~fairseq_plugins.patches.wrapping.wrap` for each function that it
wraps; a few change something else, in their ``apply()``. All may be applied any number of times and do nothing where
the bug is absent. :func:`apply` runs at import of the plugin, so a spawned worker, which imports the plugin again by
``--user-dir``, is patched too. fairseq's functions are wrapped where they are looked up, never copied.

``fairseq-hydra-train`` starts before it looks for a plugin; the patches for several processes on CPUs and for Hydra's
traces reach it as ``fairseq-deep hydra-train``.

Not patched, because the patch would be a larger hack than the bug: a forgotten ``--user-dir`` (no code of this package
is loaded then); fully sharded training without fairscale; ``TransformerConfig().encoder``, which is a class shared by
the whole process and not an instance.
"""

from __future__ import annotations

from importlib import import_module

from fairseq_plugins.patches.wrapping import wrap

MODULES: tuple[str, ...] = (
    "messages",
    "refused_checkpoints",
    "refused_broadcast",
    "unreadable_checkpoints",
    "torn_checkpoints",
    "dropped_sentences",
    "short_max_tokens",
    "another_dictionary",
    "prepared_directory",
    "another_training",
    "two_trainings_at_once",
    "inexact_resume",
    "rounded_master_weights",
    "validation_lost_at_resume",
    "resume_on_other_processes",
    "update_after_the_last",
    "validation_on_training_data",
    "bf16_means_tpu",
    "cpu_processes",
    "orphaned_ranks",
    "orphaned_loaders",
    "batches_read_ahead",
    "shared_tensors_in_ema",
    "norms_lost_from_ema",
    "ema_from_plain_checkpoint",
    "ema_interval_at_resume",
    "polynomial_decay_by_flag",
    "hydra_traces",
    "hydra_programs",
    "interrupted_workers",
    "misspelt_options",
    "impossible_values",
    "executed_options",
    "lines_at_returns",
    "unblocked_ngrams",
    "marked_dictionaries",
    "half_binarised",
    "unchecked_text",
)


def apply() -> None:
    """Patch every known bug of the installed fairseq; harmless when repeated."""
    for name in MODULES:
        module = import_module(f"{__name__}.{name}")
        for place in getattr(module, "WRAPPED", ()):
            wrap(*place)
        if hasattr(module, "apply"):
            module.apply()
