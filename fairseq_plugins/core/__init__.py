"""The one Transformer. It knows no method by name: see docs/architecture.md."""
