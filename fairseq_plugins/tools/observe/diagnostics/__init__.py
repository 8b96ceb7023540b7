"""The papers' analyses as commands: the effect of a model on streams and gradients, before you spend GPU hours.

Models are observed through hooks on their residual connections, LayerNorms and histories. Layers have no code for it,
nothing is measured unless an analysis runs, and a new method is measured like the others.
"""
