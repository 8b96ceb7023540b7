"""``fairseq-deep watch``: trainings as their logs show them, while they run or afterwards. It imports no fairseq."""
