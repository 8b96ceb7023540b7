"""Monkeypatches for bugs of fairseq, one module per bug, named after the bug.

Every module here has one ``apply()``, which may be called any number of times and does nothing where the bug is absent.
:func:`apply` runs at import of the plugin, so a spawned worker, which imports the plugin again through ``--user-dir``,
is patched too. fairseq's functions are wrapped where they are looked up, never copied.

``fairseq-hydra-train`` and ``fairseq-score`` start before they look for a plugin, or never look for one; the patches
for several processes on CPUs, for Hydra's traces and for scoring reach them as ``fairseq-deep hydra-train`` and
``fairseq-deep stock-score``.

Not patched, because the patch would be a larger hack than the bug: a forgotten ``--user-dir`` (no code of this package
is loaded then); fully sharded training without fairscale; ``TransformerConfig().encoder``, which is a class shared by
the whole process and not an instance.
"""

from __future__ import annotations

from importlib import import_module

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
    "fp16_on_cpu",
    "cpu_processes",
    "orphaned_ranks",
    "orphaned_loaders",
    "batches_read_ahead",
    "tokenizer_languages",
    "score_command",
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
    "long_lines",
    "lines_at_returns",
    "unblocked_ngrams",
    "marked_dictionaries",
    "half_binarised",
    "unchecked_text",
)


def apply() -> None:
    """Patch every known bug of the installed fairseq; harmless when repeated."""
    for name in MODULES:
        import_module(f"{__name__}.{name}").apply()
