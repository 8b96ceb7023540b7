"""Recorder of a training: writes activations, gradients and residual weights to a file that survives a crash.

``--criterion label_smoothed_cross_entropy_with_diagnostics`` trains as the criterion without the suffix does, bit for
bit, and records every ``--diagnostics-interval`` updates into ``<save-dir>/recorder.jsonl``; :func:`read` reads it.

Legend: T time, B batch, C width.
"""

from fairseq_plugins.tools.observe.recorder.entries import Entry, read

__all__ = ["Entry", "read"]
