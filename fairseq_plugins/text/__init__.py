"""Preparation of text: one small file a step, each a pure function and a thin command around it."""
