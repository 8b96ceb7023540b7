"""The stages of an experiment: download, prepare, run, evaluate, compare, reproduce and report."""
