"""fairseq's beam search for less time and memory, its numbers on a CPU, and the GNMT form of the length penalty."""

from fairseq_plugins.search.settings import register

__all__ = ["register"]
