"""The lean search with every setting of a search, with other models, and what it leaves as it was."""

import itertools
from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from fairseq_plugins.search.beam import LeanSearch
from fairseq_plugins.search.hypotheses import BLOCK, best_candidates, best_of_rows
from tests import models
from tests.search.searching import outspoken, scores, search, settings, words

KINDS = (LeanSearch, SequenceGenerator)
SETTINGS: dict[str, dict[str, Any]] = {
    "beam": {},
    "greedy": {"beam": 1},
    "wide": {"beam": 12, "nbest": 12},
    "wider than half of the words": {"beam": 25},
    "length penalty": {"lenpen": 0.6},
    "penalty of GNMT's form": {"lenpen": 0.6, "lenpen_form": "gnmt"},
    "unnormalised": {"unnormalized": True},
    "no bigram twice": {"no_repeat_ngram_size": 2},
    "long": {"min_len": 6},
    "short": {"max_len_a": 0.5, "max_len_b": 1},
    "unknown words": {"unkpen": -3.0},
    "no unknown words": {"unkpen": 100.0},
    "temperature": {"temperature": 0.5},
    "prefix": {"prefix": torch.tensor([[7, 8], [9, 1], [10, 11], [12, 13]])},
    "prefix with an end": {"prefix": torch.tensor([[7, 8, 9], [9, 2, 1], [10, 11, 1], [12, 13, 14]])},
    "diverse": {"diverse_beam_groups": 3},
    "siblings": {"diversity_rate": 0.5},
}


def assert_same(ours: list[list[dict[str, Any]]], stock: list[list[dict[str, Any]]]) -> None:
    """The same words; scores to float32's rounding, which grows with the sums."""
    for mine, theirs in zip(ours, stock, strict=True):
        assert words(mine) == words(theirs)
        assert scores(mine) == pytest.approx(scores(theirs), rel=1e-5, abs=1e-5)
        for one, other in zip(mine, theirs, strict=True):
            assert one.keys() == other.keys()
            assert torch.allclose(one["positional_scores"], other["positional_scores"], rtol=1e-5, atol=1e-5)


def both(members: list[Any], data: models.Batch, **values: Any) -> tuple[Any, Any]:
    return search(members, data, search="lean", **values), search(members, data, search="fairseq", **values)


@pytest.mark.parametrize("members", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting(name: str, members: int) -> None:
    ensemble = [outspoken(seed=seed) for seed in range(1, members + 1)]
    assert_same(*both(ensemble, models.batch(), **SETTINGS[name]))


def test_sampling_is_fairseq_s() -> None:
    members, data, found = [outspoken()], models.batch(), []
    for name in ("lean", "fairseq"):
        torch.manual_seed(3)
        found.append(search(members, data, search=name, sampling=True, sampling_topk=5))
    assert_same(*found)


@pytest.mark.parametrize("arch", ["transformer", "lstm", "transformer_align"])
def test_fairseq_s_own_models(arch: str) -> None:
    """Those without multi-head attention are left to fairseq's search."""
    of_lstm = {f"{stack}_{name}": 8 for stack in ("encoder", "decoder") for name in ("embed_dim", "hidden_size")}
    common = {"criterion": "cross_entropy", "max_source_positions": 64, "max_target_positions": 64}
    values = models.settings(arch, **common, **(of_lstm if arch == "lstm" else models.TINY))
    for beam in (1, 4):
        torch.manual_seed(1)
        model = ARCH_MODEL_REGISTRY[arch].build_model(values, models.task())
        models.perturb(model, 0.3)
        model.eval()
        model.prepare_for_inference_(Namespace(generation=settings(beam=beam)))  # every command of fairseq does so
        assert_same(*both([model], models.batch(), beam=beam))


def test_a_language_model_and_speech() -> None:
    prompt = torch.tensor([[2, 7, 8], [2, 9, 10]])
    for arch, source, lengths, options in (
        ("admin_transformer_lm", prompt, torch.tensor([3, 3]), {"prefix_tokens": prompt[:, 1:]}),
        ("post_ln_s2t_transformer", *models.speech()[:2], {}),
    ):
        model = models.tiny(arch).eval()
        models.perturb(model, 0.3)
        sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        generators = [kind([model], models.dictionary(), beam_size=4, max_len_b=8) for kind in KINDS]
        assert_same(*(generator.generate([model], sample, **options) for generator in generators))


def test_the_model_is_as_before() -> None:
    model = models.trained("dsinit_matt_self")

    def attributes() -> dict[str, tuple[set[str], list[Any]]]:
        modules = {name: vars(module) for name, module in model.named_modules()}
        changed = ("beam_size", "need_attn", "training")
        return {name: (set(found), [found.get(one) for one in changed]) for name, found in modules.items()}

    before = attributes()
    search([model], models.batch(), search="lean")
    assert attributes() == before


def test_the_first_step_runs_on_sentences_finished_ones_leave_and_the_source_is_projected_once() -> None:
    member, rows, sources = outspoken(), [], []
    forward = member.decoder.forward

    def watch(previous: torch.Tensor, **options: Any) -> Any:
        rows.append(len(previous))
        return forward(previous, **options)

    member.decoder.forward = watch
    projection = member.decoder.layers[0].encoder_attn.k_proj
    projection.register_forward_hook(lambda _, given, __: sources.append(given[0].shape))
    data = models.batch()
    search([member], data, search="lean", beam=3)
    assert rows[:2] == [4, 12]
    assert rows[1:] == sorted(rows[1:], reverse=True)
    assert sources == [(4, data.source.size(1), 16)]


# Parts


def test_the_best_of_a_row_are_those_of_topk() -> None:
    draw = torch.Generator().manual_seed(1)
    for count, width in itertools.product((1, 3, 8), (5, BLOCK, 20 * BLOCK, 20 * BLOCK + 7)):
        numbers = torch.randn(3, width, generator=draw)
        values, places = best_of_rows(numbers, min(count, width))
        assert torch.equal(values, numbers.topk(min(count, width))[0])
        assert torch.equal(numbers.gather(1, places), values)


def test_nan_is_never_the_best() -> None:
    numbers = torch.log_softmax(torch.arange(12.0).view(2, 6), dim=1)
    numbers[0] = float("nan")
    found = best_candidates(numbers, torch.zeros(1, 2), sentences=1, count=3)
    assert found.parents.tolist() == [[1, 1, 1]]
    assert found.words.tolist() == [[5, 4, 3]]
