"""Commands on checkpoints: reading and writing them, averaging, folding."""
