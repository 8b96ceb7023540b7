"""The divergence guard: notices, explains and handles a training that goes wrong, before its step.

``--divergence-action stop|skip`` of any criterion with diagnostics turns it on. Loss, gradient norm and
loss scale of every update are compared with their running bands before the weights are changed. An abnormal update is
repeated under the recorder's hooks to name the layer and sub-layer where the problem shows first; then the action is
taken. docs/divergence.md is the user documentation.
"""
