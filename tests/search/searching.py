"""Searches with a tiny model, without a command line, and what a score must be."""

import inspect
import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from tests import models

Hypothesis = dict[str, Any]
Logits = Callable[[Tensor], Tensor]


def settings(**values: Any) -> Namespace:
    """Settings as ``--eval-bleu-args`` gives them: only those that were stated."""
    return Namespace(**{"beam": 3, "max_len_b": 10, **values})


def search(members: Sequence[BaseFairseqModel], data: models.Batch, **values: Any) -> list[list[Hypothesis]]:
    """Hypotheses of each sentence from the search that the task builds; ``prefix`` (B, P) is what they begin with."""
    prefix = values.pop("prefix", None)
    generator = models.task().build_generator(list(members), settings(**values))
    return models.task().inference_step(generator, list(members), sample_of(data), prefix_tokens=prefix)


def stock_search(members: Sequence[BaseFairseqModel], data: models.Batch, **values: Any) -> list[list[Hypothesis]]:
    """The same by fairseq alone, as if this package were not there."""
    stock = inspect.unwrap(FairseqTask.build_generator)
    generator = stock(models.task(), list(members), settings(**values))
    return models.task().inference_step(generator, list(members), sample_of(data))


def sample_of(data: models.Batch) -> dict[str, Any]:
    inputs = {"src_tokens": data.source, "src_lengths": data.lengths, "prev_output_tokens": data.previous}
    return {"id": torch.arange(len(data.source)), "net_input": inputs, "target": data.target}


def outspoken(case: str = "post_ln", seed: int = 1) -> BaseFairseqModel:
    """A model that prefers some words clearly and the end mark the more, the longer the sentence is."""
    model = models.trained(case, seed=seed)
    forward = model.decoder.forward

    def forward_and_end(previous: Tensor, **options: Any) -> Any:
        logits, extra = forward(previous, **options)
        logits = 2 * logits / logits.std(-1, keepdim=True)
        logits[..., models.dictionary().eos()] += previous.size(1)
        return logits, extra

    model.decoder.forward = forward_and_end
    return model


def log_prob(hypothesis: Hypothesis) -> float:
    return float(hypothesis["positional_scores"].double().sum())


def gnmt(length: int, alpha: float) -> float:
    """Wu et al., equation 14, written another way: exp(alpha * (log(5 + length) - log(5 + 1)))."""
    return math.exp(alpha * (math.log(5 + length) - math.log(5 + 1)))


def words(hypotheses: Sequence[Hypothesis]) -> list[list[int]]:
    return [one["tokens"].tolist() for one in hypotheses]


def scores(hypotheses: Sequence[Hypothesis]) -> list[float]:
    return [float(one["score"]) for one in hypotheses]
