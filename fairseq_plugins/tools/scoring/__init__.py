"""From translations to comparable scores: which BLEU, on which text, and whether a difference is significant.

>>> from fairseq_plugins.tools.scoring import score
>>> scores = score({"mine": ["The cat sat on the mat."]}, [["The cat sat on the mat."]], metrics=["sacrebleu"])
>>> round(scores.systems[0].scores["sacreBLEU"].mean, 2)
100.0
"""

from fairseq_plugins.tools.scoring.scores import Scores, score

__all__ = ["Scores", "score"]
