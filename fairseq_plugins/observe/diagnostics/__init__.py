"""The papers' analyses as commands: what a model does to streams and gradients, before a GPU hour is spent on it.

Models are seen through hooks on their residual connections, LayerNorms and histories. No layer knows of it, nothing is
measured where no analysis runs, and a method that is added tomorrow is measured like the others.
"""
