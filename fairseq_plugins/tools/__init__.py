"""Programs around the plugin: text, trainings from YAML files, evaluation, translators, diagnostics, the command line.

Training and generation with fairseq's own commands need nothing of this directory, and nothing outside of it imports
from here. Where it is present, recorder and divergence guard are added to fairseq.
"""
