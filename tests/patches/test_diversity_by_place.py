"""A diverse search finds the same whatever numbers the sentences have in their data set."""

from __future__ import annotations

import inspect

import pytest
import torch
from fairseq.search import DiverseBeamSearch

from tests import models
from tests.search import searching
from tests.search.searching import outspoken, scores, words


def test_the_numbers_of_sentences_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble, sample = [outspoken()], searching.sample_of(models.batch())
    found = []
    for numbers in (torch.arange(4), torch.tensor([7, 90, 8, 2])):
        generator = models.task().build_generator(ensemble, searching.settings(diverse_beam_groups=3))
        ranked = models.task().inference_step(generator, ensemble, {**sample, "id": numbers})
        found.append([(words(one), scores(one)) for one in ranked])
    assert found[0] == found[1]
    monkeypatch.setattr(DiverseBeamSearch, "step", inspect.unwrap(DiverseBeamSearch.step))
    with pytest.raises(IndexError):
        models.task().inference_step(generator, ensemble, {**sample, "id": numbers})
