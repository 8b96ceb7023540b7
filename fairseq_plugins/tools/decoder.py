"""The decoder: fairseq's search over fairseq's samples, for ``fairseq-deep translate`` and ``fairseq-deep evaluate``.

torch and fairseq are imported where a decoder is made: an engine of CTranslate2 needs only :class:`Hypothesis`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Hypothesis(NamedTuple):
    """A translation in tokens.

    Attributes:
        tokens: without the end of the sentence.
        score: log-probability (natural log) with the length penalty.
        token_scores: log-probability (natural log) of each token and of the end of the sentence; CTranslate2 has none.
        alignment: places, counted from 0, of each token and of the source token that it attends to most, the source
            first; empty unless it was asked for.
    """

    tokens: list[str]
    score: float
    token_scores: Sequence[float] = ()
    alignment: Sequence[tuple[int, int]] = ()


class Decoder:
    """A model with the search that its task builds.

    Args:
        task: fairseq's.
        model: fairseq's, in evaluation mode.
        search: values of ``generation``, by name; the others are fairseq's defaults.

    Raises:
        UserError: the task or the machine cannot search so.
    """

    def __init__(self, task: Any, model: Any, search: Mapping[str, Any]) -> None:
        from omegaconf import OmegaConf

        from fairseq_plugins.search.settings import GenerationConfigWithForm

        self.task, self.model = task, model
        self.generator = task.build_generator([model], OmegaConf.structured(GenerationConfigWithForm(**search)))

    def __call__(self, sample: dict[str, Any], nbest: int = 1) -> list[list[Hypothesis]]:
        """Return the ``nbest`` best translations of each sentence of a sample, which may be on another device."""
        answers = self.task.inference_step(self.generator, [self.model], moved(sample, self.model))
        return [[self._hypothesis(result) for result in answer[:nbest]] for answer in answers]

    def _hypothesis(self, result: Mapping[str, Any]) -> Hypothesis:
        words = self.task.target_dictionary
        tokens = [words[number] for number in result["tokens"].tolist() if number != words.eos()]
        scores, alignment = result["positional_scores"].tolist(), list(map(tuple, result["alignment"]))
        return Hypothesis(tokens, float(result["score"]), scores, alignment)


def moved(sample: dict[str, Any], model: Any) -> Any:
    """Return a sample of fairseq on the device of a model."""
    from fairseq.utils import apply_to_sample

    device = next(model.parameters()).device
    return apply_to_sample(lambda tensor: tensor.to(device), sample)
