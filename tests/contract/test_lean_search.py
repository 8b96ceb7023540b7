"""The lean search finds what fairseq's finds, with every method."""

from __future__ import annotations

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_plugins.core.method import Axis
from fairseq_plugins.search.beam import LeanSearch
from fairseq_plugins.search.precision import LowLinear, lower
from fairseq_plugins.search.stepping import reads_source_once
from tests import models
from tests.contract.test_decoding import LONGEST, concise, difference
from tests.representatives import for_each, representatives
from tests.search.searching import sample_of

LOOSE = 1e-5
"""As a share of the scores' scale: a sum over the source in another order moves float32's last digit."""


@for_each("case", models.CASES, Axis.ATTENTION, Axis.HISTORY)
def test_the_lean_search_finds_what_fairseq_s_finds(case: str) -> None:
    model, sample = concise(case), sample_of(models.batch(sentences=8))
    assert reads_source_once(model.decoder), "the source is held once a hypothesis"
    for beam in (1, 4, 5):
        settings = {"beam_size": beam, "max_len_a": 0, "max_len_b": LONGEST}
        stock = SequenceGenerator([model], models.dictionary(), **settings).generate([model], sample)
        lean = LeanSearch([model], models.dictionary(), **settings).generate([model], sample)
        assert [len(ranked) for ranked in lean] == [len(ranked) for ranked in stock] == [beam] * 8
        assert len({len(ranked[0]["tokens"]) for ranked in stock}) > 1, "all sentences left the batch together"
        assert difference(lean, stock) < 5 * LOOSE  # of single words: differences of sums that are several times larger
        for mine, theirs in zip(lean, stock, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                assert float(one["score"]) == pytest.approx(float(other["score"]), rel=LOOSE, abs=LOOSE)


@pytest.mark.parametrize("precision", ["float32_packed", "bf16", "int8"])
@pytest.mark.parametrize("case", representatives(models.CASES, Axis.ATTENTION, Axis.BIAS, Axis.WEIGHT_FORM, Axis.NORM))
def test_every_linear_map_can_be_lowered(case: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits move by roundings: 2**-8 of a number in bfloat16, 1/254 of the largest in int8, float32's where packed."""
    if precision == "bf16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU has no bfloat16 instructions")
    monkeypatch.setattr("fairseq_plugins.search.precision.computes_bf16", lambda: True)
    model, data = models.trained(case), models.batch()
    with torch.no_grad():
        before = model(*data.inputs)[0]
        count = lower(model, precision)
        after = model(*data.inputs)[0]
    maps = [module for module in model.modules() if isinstance(module, (torch.nn.Linear, LowLinear))]
    assert count == len(maps)
    assert all(isinstance(module, LowLinear) for module in maps)
    moved = float((after - before).abs().max() / before.std())
    assert moved < 1e-5 if precision == "float32_packed" else 0 < moved < 0.2
    found = LeanSearch([model], models.dictionary(), beam_size=2, max_len_b=6).generate([model], sample_of(data))
    assert [len(ranked) for ranked in found] == [2, 2, 2, 2]
