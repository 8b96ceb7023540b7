"""fairseq's beam search for less time and memory, its numbers on a CPU, and the GNMT form of the length penalty."""

STOCK, GNMT = "fairseq", "gnmt"
"""Forms of the length penalty."""
