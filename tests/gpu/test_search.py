"""Beam searches on the pretended GPU: the translations of the CPU, and fewer waits of the host than stock's search."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from fairseq import utils

from fairseq_plugins.core.method import METHODS
from tests import models
from tests.gpu.pretend import SEEN, on_gpu
from tests.gpu.watching import IN_FLOAT32, by_function, of_package
from tests.representatives import slow_but
from tests.search import searching
from tests.search.test_lean import SETTINGS

A_BATCH = {
    "fairseq_plugins/core/stacks.py forward_scriptable": 1,
    "fairseq_plugins/search/step_attention.py see_source": 1,
    "fairseq_plugins/search/hypotheses.py ranked": 1,
}
"""What the lean search reads once a batch: whether the source has pads, for the encoder and for the caches of the
decoder, and the scores of all hypotheses."""
A_STEP = {"fairseq_plugins/core/stacks.py masks": 1, "fairseq_plugins/search/beam.py search": 1}
"""What it reads in a step: whether the new words are pads, as stock's decoder does, and which hypotheses end."""

SHARES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""How near the scores are to those of the CPU in float32."""


class Found(NamedTuple):
    """Of one search: words and scores of each hypothesis, steps, and what was seen by function."""

    words: list[list[list[int]]]
    scores: list[list[float]]
    steps: int
    reads: dict[str, int]
    sends: dict[str, int]
    promotions: dict[str, int]


def found(case: str, name: str, dtype: torch.dtype = torch.float32, **values: Any) -> Found:
    """Search on the GPU if there is one."""
    model, sample = searching.outspoken(case), searching.sample_of(models.batch(sentences=4))
    prefix = values.pop("prefix", None)
    if torch.cuda.is_available():
        model, sample = model.cuda(), utils.move_to_cuda(sample)
        prefix = None if prefix is None else utils.move_to_cuda(prefix)
    model.to(dtype)
    steps: list[int] = []
    forward = model.decoder.forward

    def listen(*args: Any, **options: Any) -> Any:
        steps.append(1)
        return forward(*args, **options)

    model.decoder.forward = listen
    generator = models.task().build_generator([model], searching.settings(search=name, **values))
    SEEN.forget()
    ranked = models.task().inference_step(generator, [model], sample, prefix_tokens=prefix)
    seen = [by_function(places) for places in (SEEN.reads, SEEN.sends, SEEN.promotions)]
    return Found([searching.words(one) for one in ranked], [searching.scores(one) for one in ranked], len(steps), *seen)


def shared(one: Found, other: Found) -> list[tuple[float, float]]:
    """Both scores of each hypothesis that both have found."""

    def by_words(found: Found) -> list[dict[tuple[int, ...], float]]:
        sentences = zip(found.words, found.scores, strict=True)
        return [dict(zip(map(tuple, words), scores, strict=True)) for words, scores in sentences]

    pairs = zip(by_words(one), by_words(other), strict=True)
    return [(score, theirs[words]) for mine, theirs in pairs for words, score in mine.items() if words in theirs]


@pytest.mark.parametrize("case", slow_but(("dsinit_matt_aan", "realformer"), METHODS))
def test_every_method(case: str) -> None:
    expected = found(case, "lean")
    for dtype, share in SHARES.items():
        lean, stock = on_gpu(lambda dtype=dtype: [found(case, name, dtype) for name in ("lean", "fairseq")])
        for one in (lean, stock):
            if dtype == torch.float32:
                assert one.words == expected.words
            # In half precision hypotheses that are almost as likely may take each other's place.
            pairs = shared(one, expected)
            assert len(pairs) >= sum(map(len, expected.words)) / 2
            assert [mine for mine, _ in pairs] == pytest.approx([other for _, other in pairs], rel=share, abs=share)
        steps = {place: count * lean.steps for place, count in A_STEP.items()}
        assert {place: count for place, count in lean.reads.items() if place not in A_BATCH} == steps
        assert {place: lean.reads[place] for place in A_BATCH if place in lean.reads}.items() <= A_BATCH.items()
        assert lean.sends == {}
        assert sum(stock.reads.values()) > 2 * sum(lean.reads.values())
        assert of_package(lean.promotions).keys() | of_package(stock.promotions).keys() <= IN_FLOAT32


@pytest.mark.slow
def test_every_setting_on_a_gpu() -> None:
    """None of them leaves a tensor behind, in either search."""

    def all_of_them() -> list[list[Found]]:
        return [[found("post_ln", name, **dict(values)) for values in kept] for name in ("lean", "fairseq")]

    # fairseq's search among siblings writes into tensors of another shape, which are not pretended.
    kept = [values for name, values in SETTINGS.items() if name != "siblings"]
    lean, stock = on_gpu(all_of_them)
    for values, one, other in zip(kept, lean, stock, strict=True):
        expected = found("post_ln", "lean", **dict(values))
        assert one.words == other.words == expected.words, values
