"""A toy-size run of the pipeline: several methods on one small corpus, from text to a table and a page."""
