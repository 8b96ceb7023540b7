"""A trained model as one directory that translates raw text, and its export to another engine."""
