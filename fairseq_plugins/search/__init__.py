"""Addition to fairseq's search: the GNMT form of the length penalty."""

from fairseq_plugins.search.settings import register

__all__ = ["register"]
