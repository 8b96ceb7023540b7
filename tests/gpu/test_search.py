"""Beam searches on the pretended GPU: the translations of the CPU, and fewer waits of the host than stock's search.

With graphs every number is that of the same steps without them, bit for bit, or the log says why there are none.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from fairseq import utils
from omegaconf import OmegaConf

from fairseq_plugins.core import recorded
from fairseq_plugins.core.layers import DecoderLayer
from fairseq_plugins.core.method import METHODS
from fairseq_plugins.search import beam, step_graphs
from fairseq_plugins.search.settings import GenerationConfigWithForm
from fairseq_plugins.search.step_graphs import StepGraphs
from tests import models
from tests.gpu.faults import Fault, counts, forgetful, planted, reads, replaces, sends
from tests.gpu.graphs import PretendedGraph
from tests.gpu.pretend import SEEN, on_gpu
from tests.gpu.watching import IN_FLOAT32, by_function, of_package
from tests.representatives import slow_but
from tests.search import searching
from tests.search.test_lean import SETTINGS

A_BATCH = {"fairseq_plugins/search/step_attention.py attend": 1, "fairseq_plugins/search/hypotheses.py ranked": 1}
"""Reads of the lean search once a batch: whether the source has pads, and the scores of all hypotheses."""
PADS, ENDS = "fairseq_plugins/core/stacks.py has_pads", "fairseq_plugins/search/beam.py search"
LAST = "fairseq_plugins/search/beam.py finish"
"""Its reads in a step: whether the new words are pads, as stock's decoder does, and which hypotheses end. The
encoder, too, asks for pads."""

SHARES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""How near the scores are to those of the CPU in float32."""


class Found(NamedTuple):
    """Results of one search: words and scores of each hypothesis, steps, and events by function."""

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
        steps = {PADS: lean.steps + 1, ENDS: lean.steps}
        assert {place: count for place, count in lean.reads.items() if place not in A_BATCH} == steps
        assert {place: lean.reads[place] for place in A_BATCH if place in lean.reads}.items() <= A_BATCH.items()
        assert lean.sends == {}
        assert sum(stock.reads.values()) > 2 * sum(lean.reads.values())
        assert of_package(lean.promotions).keys() | of_package(stock.promotions).keys() <= IN_FLOAT32


# Steps as graphs ------------------------------------------------------------------------------------------------------

HOWS = ("graphs", "rooms", "exact")
"""Steps as graphs, the same steps computed eagerly, and steps of exactly what is there."""
EAGER = {"aan", "dsinit_matt", "dsinit_matt_aan", "realformer"}
"""Methods with another state than keys and values, or with a module that counts the updates of a training."""
BATCHES = (9, 9, 4, 9)
"""Sentences of each batch; in the first the memory of the caches grows, in the second every room is recorded."""


class Searched(NamedTuple):
    """Words and log-probabilities of all hypotheses; steps, replays and reads of the last batch; rooms; warnings."""

    words: list[list[int]]
    scores: list[list[float]]
    steps: int
    replays: int
    reads: dict[str, int]
    rooms: list[tuple[Any, ...]]
    warnings: list[str]

    def numbers(self) -> Any:
        return self.words, self.scores


def nothing(*_: Any) -> None:
    pass


def searched(
    case: str, how: str, dtype: torch.dtype = torch.float32, between: Callable[..., None] = nothing, **values: Any
) -> Searched:
    """Search some batches, at first with room for ``first`` steps. ``between`` is called before the last batch."""
    members = [models.trained(case, seed=seed).cuda().to(dtype) for seed in range(1, 1 + values.pop("members", 1))]
    prefix, first, hypotheses, warnings = values.pop("prefix", None), values.pop("first", 2), [], list[str]()
    values = {"max_len_b": 9, "temperature": 0.3, "no_search_graphs": how == "exact", **values}
    generator = models.task().build_generator(members, searching.settings(**values))
    counts = {"steps": 0, "replays": 0}
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    recorded.logger.addHandler(handler)

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            counts[name] += 1
            return function(*given)

        return count

    record = StepGraphs._recorded if how == "graphs" else lambda graphs, member, room, expected, waits: expected
    with (
        mock.patch.object(step_graphs, "FIRST_STEPS", first),
        mock.patch.object(StepGraphs, "_recorded", record),
        mock.patch.object(PretendedGraph, "replay", counted("replays", PretendedGraph.replay)),
        mock.patch.object(beam._Batch, "candidates", counted("steps", beam._Batch.candidates)),
    ):
        for number, sentences in enumerate(BATCHES):
            if number == len(BATCHES) - 1:
                between(generator, members)
                SEEN.forget()
                counts.update(steps=0, replays=0)
            sample = utils.move_to_cuda(searching.sample_of(models.batch(sentences)))
            begin = None if prefix is None else utils.move_to_cuda(prefix.repeat(3, 1)[:sentences])
            answers = models.task().inference_step(generator, members, sample, prefix_tokens=begin)
            hypotheses += [hypothesis for answer in answers for hypothesis in answer]
    words = [hypothesis["tokens"].tolist() for hypothesis in hypotheses]
    scores = [hypothesis["positional_scores"].tolist() for hypothesis in hypotheses]
    reads, rooms = by_function(SEEN.reads), [sizes for graphs in generator.graphs for sizes in graphs.rooms]
    return Searched(words, scores, counts["steps"], counts["replays"], reads, rooms, warnings)


def assert_replayed(case: str, **settings: Any) -> Searched:
    """Search in each way; every step of the last batch but its first is a replay, for each member."""
    graphs, rooms, exact = (on_gpu(searched, case, how, **settings) for how in HOWS)
    assert graphs.numbers() == rooms.numbers()
    if settings.get("dtype", torch.float32) == torch.float32:
        assert graphs.words == exact.words
        for ours, theirs in zip(graphs.scores, exact.scores, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    assert graphs.warnings == []
    assert graphs.replays == (graphs.steps - 1) * settings.get("members", 1) > 0
    return graphs


@pytest.mark.parametrize("case", slow_but(("admin",), METHODS))
def test_every_method_by_graphs(case: str) -> None:
    if case in EAGER:
        graphs, exact = (on_gpu(searched, case, how) for how in ("graphs", "exact"))
        assert (graphs.numbers(), graphs.replays) == (exact.numbers(), 0)
        return
    assert_replayed(case, dtype=torch.float16)
    graphs = assert_replayed(case)
    sentences, _, source, steps, _ = map(set, zip(*graphs.rooms, strict=True))
    assert (sentences >= {10, 4}, source, steps >= {2, 4, 8}) == (True, {8}, True)
    # The first step is not replayed: it reads the source, and whether there are pads. Which hypotheses end is read a
    # step later: the host waits for the whole GPU at the last step alone.
    assert graphs.reads.items() <= (A_BATCH | {PADS: 2, LAST: 1}).items()


@pytest.mark.parametrize("name", slow_but(("greedy",), [*SETTINGS][:15]))
def test_every_setting_by_graphs(name: str) -> None:
    assert_replayed("post_ln", **SETTINGS[name])


@pytest.mark.slow
def test_an_ensemble_by_graphs() -> None:
    assert_replayed("post_ln", members=2)


@pytest.mark.parametrize("arch", ["admin_transformer_lm", "post_ln_s2t_transformer"])
def test_a_language_model_and_speech_by_graphs(arch: str) -> None:
    prompt = torch.tensor([[2, 7, 8], [2, 9, 10]])
    of_text = prompt, torch.tensor([3, 3]), {"prefix": prompt[:, 1:]}
    source, lengths, options = (*models.speech()[:2], {}) if "s2t" in arch else of_text

    def found(graphs: bool) -> tuple[Any, int]:
        model = models.tiny(arch).eval()
        models.perturb(model, 0.3)
        generator = beam.LeanSearch([model.cuda()], models.dictionary(), beam_size=4, max_len_b=20)
        generator.graphs = [StepGraphs()] if graphs else ()
        inputs = {"src_tokens": source.cuda(), "src_lengths": lengths.cuda()}
        prefixes = {f"{name}_tokens": value.cuda() for name, value in options.items()}
        answers = generator.generate([model], {"net_input": inputs}, **prefixes)
        return [searching.words(answer) for answer in answers], sum(len(one.rooms) for one in generator.graphs)

    ours, theirs = (on_gpu(found, graphs) for graphs in (True, False))
    assert ours[0] == theirs[0]
    assert (ours[1] > 0, theirs[1]) == (True, 0)


def test_commands_search_by_graphs_and_a_validation_in_training_does_not() -> None:
    """In a training their memory would be missing; ``eval_bleu_args`` has only the keys that the user wrote."""
    whole, member = OmegaConf.structured(GenerationConfigWithForm()), models.trained("admin")
    off = OmegaConf.structured(GenerationConfigWithForm(no_search_graphs=True))
    asked = (whole, off, searching.settings(), searching.settings(no_search_graphs=False))
    assert [len(models.task().build_generator([member], one).graphs) for one in asked] == [1, 0, 0, 1]


def test_sentences_leave_by_halves() -> None:
    """Nine sentences that end early, one after another, need few rooms."""
    rooms = assert_replayed("post_ln", temperature=1.0).rooms
    assert {sizes[0] for sizes in rooms} == {10, 4, 2}


# Faults that a graph must not hide ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_weights_in_other_memory_are_recorded_anew() -> None:
    def replace(_: Any, members: Any) -> None:
        for parameter in members[0].decoder.parameters():
            parameter.data = parameter.data * 1.5

    def change(_: Any, members: Any) -> None:
        with torch.no_grad():
            for parameter in members[0].decoder.parameters():
                parameter.mul_(1.5)

    changed = [on_gpu(searched, "admin", how, between=which) for how in HOWS[:2] for which in (replace, change)]
    assert all(one.numbers() == changed[0].numbers() for one in changed)
    assert changed[1].replays == changed[1].steps - 1
    assert changed[0].numbers() != on_gpu(searched, "admin", "rooms").numbers()


def test_what_another_batch_left_in_the_caches_is_not_seen() -> None:
    def infect(generator: Any, _: Any) -> None:
        for memory in generator.graphs[0]._memory.values():
            memory.fill_(float("inf"))

    clean, infected = (on_gpu(searched, "admin", "graphs", between=between) for between in (nothing, infect))
    assert clean.numbers() == infected.numbers()


def test_a_module_that_is_watched_or_replaced_runs() -> None:
    calls: list[int] = []

    def watch(_: Any, members: Any) -> None:
        members[0].decoder.layers[0].register_forward_hook(lambda *_: calls.append(1))

    def watched() -> tuple[Searched, int]:
        return searched("admin", "graphs", between=watch), len(calls)

    seen, count = on_gpu(watched)
    assert (seen.replays, count) == (0, seen.steps)


@pytest.mark.parametrize("fault", slow_but((sends,), (reads, sends)))
def test_a_layer_that_asks_or_sends_stays_eager(fault: Fault) -> None:
    with planted(DecoderLayer, fault):
        graphs, exact = (on_gpu(searched, "admin", how) for how in ("graphs", "exact"))
    assert len(graphs.warnings) == 1
    assert "without CUDA graphs: the host waits for the GPU at " in graphs.warnings[0]
    assert (graphs.words, graphs.replays) == (exact.words, 0)


def test_a_layer_that_counts_is_found_before_its_first_replay() -> None:
    with planted(DecoderLayer, counts):
        graphs = on_gpu(searched, "admin", "graphs")
    assert graphs.warnings == ["the search goes on without CUDA graphs: a replay has other numbers"]
    assert (graphs.rooms, graphs.replays) == ([], 0)


def test_a_table_that_is_replaced_is_kept_for_the_graph_that_reads_it() -> None:
    with planted(DecoderLayer, replaces):
        assert_replayed("admin")
        with forgetful(), pytest.raises(AssertionError, match="freed memory"):
            on_gpu(searched, "admin", "graphs", first=16)  # one graph for all steps: it alone reads the table
