"""Transformers that train deep, as a fairseq user directory."""

from fairseq_plugins import compat

compat.apply()
