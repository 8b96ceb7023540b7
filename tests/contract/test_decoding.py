"""Decoding step by step with a cache gives what a whole forward pass gives, in beam search as well."""

from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_plugins.core.method import Axis
from fairseq_plugins.core.model import DeepTransformerModel
from tests import models
from tests.representatives import for_each
from tests.rounding import assert_same_to_rounding, scale

every_case = for_each("case", models.CASES, Axis.ATTENTION, Axis.LAYER_AGGREGATION)
"""A step hands on the state of attention and history alone, so these two axes choose the cases."""
PAD = models.dictionary().pad()
BEAM = 3
LONGEST = 12
Hypothesis = dict[str, Any]


@every_case
def test_incremental_equals_full(case: str) -> None:
    model, data = models.trained(case), models.batch()
    with torch.no_grad():
        full, extra = model(*data.inputs)
        encoder_out = model.encoder(data.source, data.lengths)
        cache: dict[str, dict[str, Tensor]] = {}
        for step in range(1, data.previous.size(1) + 1):
            found, found_extra = model.decoder(data.previous[:, :step], encoder_out, incremental_state=cache)
            assert found.shape == (4, 1, 40)
            valid = data.previous[:, step - 1].ne(PAD)
            assert_same_to_rounding(found[valid, 0], full[valid, step - 1])
            weights, expected = found_extra["attn"][0][valid, 0], extra["attn"][0][valid, step - 1]
            assert_same_to_rounding(weights, expected)
        assert cache


def concise(case: str) -> DeepTransformerModel:
    """A model that prefers some words clearly, so that beams differ and move.

    It ends a sentence once it is as long as its source: every batch loses its short ones first.
    """
    model = models.trained(case)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(4)
    forward = model.decoder.forward

    def forward_and_end(previous: Tensor, encoder_out: dict[str, list[Tensor]], **options: Any) -> Any:
        logits, extra = forward(previous, encoder_out=encoder_out, **options)
        position = torch.arange(previous.size(1))[-logits.size(1) :]
        bonus = torch.zeros_like(logits)
        bonus[..., models.dictionary().eos()] = 20.0 * (position >= encoder_out["src_lengths"][0])
        return logits + bonus, extra

    model.decoder.forward = forward_and_end
    return model


def search(model: DeepTransformerModel) -> tuple[list[list[Hypothesis]], list[int]]:
    """Hypotheses of each sentence, and the number of beams in the batch at each step."""
    generator = SequenceGenerator([model], models.dictionary(), beam_size=BEAM, max_len_a=0, max_len_b=LONGEST)
    sizes: list[int] = []
    forward_decoder = generator.model.forward_decoder

    def watch(tokens: Tensor, *args: Any) -> Any:
        sizes.append(tokens.size(0))
        return forward_decoder(tokens, *args)

    generator.model.forward_decoder = watch
    data = models.batch(sentences=8)
    hypotheses = generator({"net_input": {"src_tokens": data.source, "src_lengths": data.lengths}})
    return hypotheses, sizes


def difference(some: list[list[Hypothesis]], others: list[list[Hypothesis]]) -> float:
    """Largest difference between scores of hypotheses of the same rank, as a share of their scale.

    It is infinite where the words differ.
    """
    worst = 0.0
    for mine, theirs in zip(some, others, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            if not torch.equal(a["tokens"], b["tokens"]):
                return float("inf")
            scores = a["positional_scores"]
            worst = max(worst, float((scores - b["positional_scores"]).abs().max()) / scale(scores))
    return worst


def rescoring_error(model: DeepTransformerModel, hypotheses: list[list[Hypothesis]]) -> float:
    """Largest difference to the mean log-probability under a whole forward pass, as a share of the scores' scale."""
    errors = []
    for sentence, ranked in enumerate(hypotheses):
        data = models.batch(sentences=8).rows(sentence, sentence + 1)
        for hypothesis in ranked:
            tokens = hypothesis["tokens"]
            previous = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)
            with torch.no_grad():
                output = model(data.source, data.lengths, previous)
                expected = model.get_normalized_probs(output, log_probs=True)[0].gather(1, tokens.unsqueeze(1)).mean()
            errors.append(abs(float(hypothesis["score"] - expected)) / scale(hypothesis["positional_scores"]))
    return max(errors)


@every_case
def test_scores_of_a_beam_search_are_those_of_a_whole_forward_pass(case: str) -> None:
    model = concise(case)
    hypotheses, sizes = search(model)
    assert all(len(ranked) == BEAM for ranked in hypotheses)
    assert len(set(sizes)) > 1, "no sentence left the batch before the others"
    assert len({len(found["tokens"]) for ranked in hypotheses for found in ranked}) > 1
    assert rescoring_error(model, hypotheses) < 1e-4
