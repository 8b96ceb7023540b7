"""The recipes of the papers, a file each; ``configs/generate.py`` writes the YAML files from them."""
