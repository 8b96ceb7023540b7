"""The lean search finds what fairseq's finds, with every method."""

import pytest
from fairseq.sequence_generator import SequenceGenerator

from fairseq_plugins.core.method import Axis
from fairseq_plugins.search.beam import LeanSearch
from fairseq_plugins.search.stepping import reads_source_once
from tests import models
from tests.contract.test_decoding import LONGEST, concise, difference
from tests.representatives import for_each
from tests.search.searching import sample_of

LOOSE = 1e-5
"""A share of the scores' scale: a sum over the source in another order moves float32's last digit."""


@for_each("case", models.CASES, Axis.ATTENTION, Axis.LAYER_AGGREGATION)
def test_the_lean_search_finds_what_fairseq_s_finds(case: str) -> None:
    model, sample = concise(case), sample_of(models.batch(sentences=8))
    assert reads_source_once(model.decoder), "the source is held once a hypothesis"
    for beam in (1, 4):
        settings = {"beam_size": beam, "max_len_a": 0, "max_len_b": LONGEST}
        stock = SequenceGenerator([model], models.dictionary(), **settings).generate([model], sample)
        lean = LeanSearch([model], models.dictionary(), **settings).generate([model], sample)
        assert [len(ranked) for ranked in lean] == [len(ranked) for ranked in stock] == [beam] * 8
        assert len({len(ranked[0]["tokens"]) for ranked in stock}) > 1, "all sentences left the batch together"
        assert difference(lean, stock) < 5 * LOOSE  # words' scores are differences of sums several times larger
        for mine, theirs in zip(lean, stock, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                assert float(one["score"]) == pytest.approx(float(other["score"]), rel=LOOSE, abs=LOOSE)
