"""The length penalty of GNMT: divides the sum of log-probabilities by ``((5 + length) / 6) ** alpha``.

Wu et al., 2016, https://arxiv.org/abs/1609.08144, equation 14, without the coverage penalty; many papers mean this by a
length penalty of 0.6. ``length`` counts the end mark, as in fairseq's own form, in the toolkit of the DS-Init authors
(https://github.com/bzhangGo/zero, ``search.py``) and in Tensor2Tensor. Open hypotheses of a step have the same length,
so the search itself is fairseq's, and the penalty ranks its results.
"""

import math
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer

from fairseq_plugins.errors import UserError


def gnmt_length_penalty(length: int, alpha: float) -> float:
    """Wu et al., 2016, equation 14: ``((5 + length) / 6) ** alpha``; ``length`` counts the end mark."""
    return ((5.0 + length) / 6.0) ** alpha


def in_gnmt_form(search: SequenceGenerator | SequenceScorer, alpha: float) -> Any:
    """Let a search of fairseq, or its scorer of references, score and rank in the GNMT form; returns it.

    A search without fairseq's penalty gives the sum of log-probabilities, which is divided by
    :func:`gnmt_length_penalty`. The scorer always takes their mean, so there the sum is made again. Only ``generate``
    is wrapped.

    Raises:
        UserError: alpha is negative or not finite, or the search has no length penalty.
    """
    if not 0 <= alpha < math.inf:
        raise UserError(
            f"--lenpen {alpha:g}: with --lenpen-form gnmt it is the alpha of ((5 + length) / 6) ** alpha, a number "
            "that is finite and not negative, for instance 0.6; 0 means no penalty"
        )
    if not getattr(search, "normalize_scores", True):
        raise UserError("--lenpen-form gnmt asks for a length penalty and --unnormalized for none: drop one of the two")
    generate, takes_mean = search.generate, isinstance(search, SequenceScorer)
    search.normalize_scores, search.gnmt_alpha = False, alpha

    def generate_in_form(models: Any, sample: dict[str, Any], **options: Any) -> list[list[dict[str, Any]]]:
        ranked = []
        for hypotheses in generate(models, sample, **options):
            for hypothesis in hypotheses:
                total = hypothesis["positional_scores"].sum() if takes_mean else hypothesis["score"]
                hypothesis["score"] = total / gnmt_length_penalty(len(hypothesis["tokens"]), alpha)
            scores = torch.tensor([float(hypothesis["score"]) for hypothesis in hypotheses])
            # Equal ones keep their order.
            ranked.append([hypotheses[place] for place in scores.sort(descending=True, stable=True)[1].tolist()])
        return ranked

    search.generate = generate_in_form
    return search
