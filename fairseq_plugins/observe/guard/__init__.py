"""The divergence guard: a training that goes wrong is noticed before its step, explained, and dealt with.

``--divergence-action stop|skip|lower-lr|fp32`` of any criterion with diagnostics turns it on. Loss, gradient norm and
loss scale of every update are compared with their running bands before the weights are changed. An abnormal update is
repeated under the recorder's hooks to name the layer and sub-layer where it shows first; a report is written and the
action is taken. docs/guard.md tells users more.
"""

from __future__ import annotations


def register() -> None:
    """Add the guard's flags to the criteria that are made later, and let fairseq's trainer ask it; once."""
    from fairseq_plugins.observe.guard import installing, settings
    from fairseq_plugins.observe.recorder import criteria

    criteria.SETTINGS += [one for one in settings.SETTINGS if one not in criteria.SETTINGS]
    installing.install()
