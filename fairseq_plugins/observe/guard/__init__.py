"""The divergence guard: notices, explains and handles a training that goes wrong, before its step.

``--divergence-action stop|skip`` of any criterion with diagnostics turns it on. Loss, gradient norm and
loss scale of every update are compared with their running bands before the weights are changed. An abnormal update is
repeated under the recorder's hooks to name the layer and sub-layer where the problem shows first; a report is written
and the action is taken. docs/guard.md is the user documentation.
"""

from __future__ import annotations


def register() -> None:
    """Add the guard's flags to criteria that are extended later, and hook it into fairseq's trainer; idempotent."""
    from fairseq_plugins.observe.guard import installing, settings
    from fairseq_plugins.observe.recorder import criteria

    criteria.SETTINGS += [setting for setting in settings.SETTINGS if setting not in criteria.SETTINGS]
    installing.install()
