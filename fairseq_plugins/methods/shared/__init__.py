"""What several methods share: averages over the target, sums over all states, bounded functions instead of norms."""
