"""The length penalty of GNMT: divides the sum of log-probabilities by ``((5 + length) / 6) ** alpha``.

Wu et al., 2016, https://arxiv.org/abs/1609.08144, equation 14, without the coverage penalty. Papers whose toolkit
follows that equation mean this by a length penalty of 0.6. fairseq divides by ``length ** lenpen``.

``length`` counts the end mark, as fairseq's own form does. The equation leaves that open; the toolkit of the DS-Init
authors (https://github.com/bzhangGo/zero, ``search.py``) and Tensor2Tensor raise ``(5 + time + 1) / 6`` to alpha, where
``time`` is 0 at the first target token, and ``time + 1`` at the end mark is the length with it.

At each step all open hypotheses have the same length, so a length penalty has no effect before a hypothesis ends. Hence
the search itself is fairseq's, with its own stopping rule, and the penalty ranks the results of the search.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor

from fairseq_plugins.errors import UserError


def gnmt_length_penalty(length: int, alpha: float) -> float:
    """Wu et al., 2016, equation 14: ``((5 + length) / 6) ** alpha``; 1 for one token, and for alpha 0.

    Args:
        length: number of target tokens, including the end mark.
        alpha: strength; a larger value gives longer translations.
    """
    return ((5.0 + length) / 6.0) ** alpha


def checked_alpha(lenpen: Any, normalized: bool = True) -> float:
    """Return the alpha of equation 14 from the settings of a search.

    Args:
        lenpen: the value of ``--lenpen``; from a JSON string it may be anything.
        normalized: whether scores have a length penalty at all; false with ``--unnormalized``.

    Raises:
        UserError: it is not a finite number, negative, or the penalty is switched off at the same time.
    """
    problems = []
    if isinstance(lenpen, bool) or not isinstance(lenpen, (int, float)) or not 0 <= lenpen < math.inf:
        problems.append(
            f"--lenpen {lenpen}: with --lenpen-form gnmt it is the alpha of ((5 + length) / 6) ** alpha, a number that "
            "is finite and not negative, for instance 0.6; 0 means no penalty"
        )
    if not normalized:
        problems.append("--lenpen-form gnmt asks for a length penalty and --unnormalized for none: drop one of the two")
    if problems:
        raise UserError(problems)
    return float(lenpen)


class GNMTRanking:
    """Mixin that gives a search of fairseq the GNMT form. List it before the fairseq class.

    fairseq computes unnormalised scores, so ``score`` is first the sum of log-probabilities; it is then divided by
    :func:`gnmt_length_penalty`, best first. Everything else in a hypothesis comes from fairseq.

    Args:
        models: the ensemble.
        tgt_dict: the target dictionary.
        len_penalty: alpha.
        normalize_scores: must be true; an argument because fairseq passes it.
        settings: all other settings of fairseq's search.

    Raises:
        UserError: alpha is not a finite number of at least 0, or ``normalize_scores`` is false.
    """

    _generate: Any

    def __init__(
        self,
        models: Any,
        tgt_dict: Any,
        len_penalty: float = 1.0,
        normalize_scores: bool = True,
        **settings: Any,
    ) -> None:
        alpha = checked_alpha(len_penalty, normalize_scores)
        super().__init__(models, tgt_dict, len_penalty=alpha, normalize_scores=False, **settings)  # type: ignore[call-arg]
        self.alpha = alpha

    @torch.no_grad()
    def forward(
        self,
        sample: dict[str, dict[str, Tensor]],
        prefix_tokens: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        """Return the hypotheses of each sentence, best first."""
        return self.rank(self._generate(sample, prefix_tokens, bos_token=bos_token))

    def generate(self, models: Any, sample: dict[str, Any], **options: Any) -> list[list[dict[str, Tensor]]]:
        """Return the hypotheses of each sentence, best first, for fairseq's commands, whose ``options`` these are."""
        return self.rank(super().generate(models, sample, **options))  # type: ignore[misc]

    def rank(self, found: list[list[dict[str, Tensor]]]) -> list[list[dict[str, Tensor]]]:
        """Divide each sum of log-probabilities by the penalty of its length and sort; equal ones keep their order."""
        ranked: list[list[dict[str, Tensor]]] = []
        for hypotheses in found:
            scores: list[float] = []
            for hypothesis in hypotheses:
                penalty = gnmt_length_penalty(hypothesis["tokens"].size(0), self.alpha)
                hypothesis["score"] = hypothesis["score"] / penalty
                scores.append(float(hypothesis["score"].item()))
            order: list[int] = torch.sort(torch.tensor(scores), stable=True, dim=0, descending=True)[1].tolist()
            ranked.append([hypotheses[position] for position in order])
        return ranked


class GNMTSequenceGenerator(GNMTRanking, SequenceGenerator):
    """fairseq's search (beam, diverse beam, sampling, constrained) with scores in the GNMT form."""


class GNMTSequenceGeneratorWithAlignment(GNMTRanking, SequenceGeneratorWithAlignment):
    """The same for ``--print-alignment``."""


class GNMTSequenceScorer(SequenceScorer):
    """``--score-reference``: the score of a reference, comparable with those of hypotheses in the GNMT form.

    fairseq's own scorer always takes the mean of the log-probabilities, whatever ``--lenpen`` is.

    Args:
        tgt_dict: the target dictionary.
        alpha: of :func:`gnmt_length_penalty`; checked by the caller.
        settings: all other settings of fairseq's scorer.
    """

    def __init__(self, tgt_dict: Any, alpha: float, **settings: Any) -> None:
        super().__init__(tgt_dict, **settings)
        self.alpha = alpha

    @torch.no_grad()
    def generate(self, models: Any, sample: dict[str, Any], **options: Any) -> list[list[dict[str, Any]]]:
        """Return one hypothesis, the reference, of each sentence; ``options`` are fairseq's."""
        scored: list[list[dict[str, Any]]] = super().generate(models, sample, **options)
        for (reference,) in scored:
            penalty = gnmt_length_penalty(reference["tokens"].numel(), self.alpha)
            reference["score"] = reference["positional_scores"].sum() / penalty
        return scored
