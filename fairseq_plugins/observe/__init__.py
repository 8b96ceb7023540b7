"""What is seen inside a model while it trains or afterwards: recorder, guard, the papers' analyses, a live view."""
