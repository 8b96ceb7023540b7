"""Shared code of methods: averages over the target, sums over all states, bounded functions instead of norms."""
