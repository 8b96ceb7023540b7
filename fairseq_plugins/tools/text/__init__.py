"""Preparation of text: one small file per step, each a pure function with a thin command."""
