"""``fairseq-deep watch``: shows trainings from their logs, while they run or afterwards. Does not import fairseq."""
