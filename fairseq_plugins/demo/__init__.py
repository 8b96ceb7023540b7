"""The main job: from text to a table of methods, and the corpus that it is shown on."""
