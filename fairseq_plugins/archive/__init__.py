"""What torch writes to a file, checked before anything in it is believed: its records, its pickle, its values."""

NON_FINITE_ALLOWED = "FAIRSEQ_DEEP_ALLOW_NON_FINITE"
"""Environment variable of ``--allow-non-finite``, so that every process of a command has it."""
