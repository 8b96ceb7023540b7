"""The decoder: fairseq's search over fairseq's samples, for ``fairseq-deep translate`` and ``fairseq-deep evaluate``.

torch and fairseq are imported where a decoder is made: an engine of CTranslate2 needs only :class:`Hypothesis`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Hypothesis(NamedTuple):
    """A translation in tokens, without the end of the sentence.

    Attributes:
        score: log-probability (natural log) with the length penalty.
        token_scores: log-probability (natural log) of each token and of the end of the sentence; CTranslate2 has none.
        alignment: places, counted from 0, of the source token with the most attention and of the token; empty unless
            it was asked for.
    """

    tokens: list[str]
    score: float
    token_scores: Sequence[float] = ()
    alignment: Sequence[tuple[int, int]] = ()


class TaskDecoder:
    """A model of fairseq in evaluation mode, with the search that its task builds.

    ``search`` has values of ``generation`` by name; other values are fairseq's defaults. A search that the task or the
    machine cannot do is a UserError.
    """

    def __init__(self, task: Any, model: Any, search: Mapping[str, Any]) -> None:
        from omegaconf import OmegaConf

        from fairseq_plugins.search.settings import GenerationConfigWithForm

        self.task, self.model = task, model
        self.generator = task.build_generator([model], OmegaConf.structured(GenerationConfigWithForm(**search)))

    def __call__(self, sample: dict[str, Any], nbest: int = 1) -> list[list[Hypothesis]]:
        """Return the ``nbest`` best translations of each sentence of a sample, which may be on another device."""
        from fairseq.utils import apply_to_sample

        words, device = self.task.target_dictionary, next(self.model.parameters()).device
        sample = apply_to_sample(lambda tensor: tensor.to(device), sample)
        lists: list[list[Hypothesis]] = []
        for answer in self.task.inference_step(self.generator, [self.model], sample):
            lists.append([])
            for result in answer[:nbest]:
                tokens = [words[number] for number in result["tokens"].tolist() if number != words.eos()]
                scores, alignment = result["positional_scores"].tolist(), list(map(tuple, result["alignment"]))
                lists[-1].append(Hypothesis(tokens, float(result["score"]), scores, alignment))
        return lists
