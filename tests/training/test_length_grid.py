"""Batches on a grid of lengths: few shapes, every sentence once, the same loss."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import BaseWrapperDataset, LanguagePairDataset, ListDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.trainer import Trainer
from hydra import compose, initialize_config_module
from hypothesis import example, given
from hypothesis import strategies as st

from fairseq_plugins.training import length_grid
from fairseq_plugins.training.length_grid import OnGrid, grid
from tests import models, toy
from tests.language_model import text
from tests.patches.conftest import watched
from tests.refusals import line_of, refused

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120)


def pairs(lengths: Sequence[tuple[int, int]]) -> LanguagePairDataset:
    """Pairs of these lengths, end marks counted."""
    words, draw = models.dictionary(), torch.Generator().manual_seed(5)

    def sentences(side: Iterable[int]) -> ListDataset:
        made = [torch.randint(words.nspecial, len(words), (length,), generator=draw) for length in side]
        for sentence in made:
            sentence[-1] = words.eos()
        return ListDataset(made, [len(sentence) for sentence in made])

    source, target = map(sentences, zip(*lengths, strict=True))
    return LanguagePairDataset(source, source.sizes, words, target, target.sizes, words)


def iterator(data: Any, ratio: float | None = 1.3, rank: int = 0, ranks: int = 1, **given: Any) -> EpochBatchIterator:
    """The batches of a training with these settings of its data."""
    task, graphs = FairseqTask(SimpleNamespace()), given.pop("graphs", False)
    task.datasets["train"] = data
    given = {"max_tokens": 200, "batch_size": None, "required_batch_size_multiple": 8, "length_grid": ratio} | given
    more = {"num_workers": 0, "data_buffer_size": 0, "grouped_shuffling": False, "update_epoch_batch_itr": False}
    dataset = SimpleNamespace(train_subset="train", update_ordered_indices_seed=False, **given, **more)
    trainer: Any = SimpleNamespace(
        cfg=SimpleNamespace(
            dataset=dataset,
            common=SimpleNamespace(seed=3, cuda_graphs=graphs),
            optimization=SimpleNamespace(skip_remainder_batch=False),
        ),
        task=task,
        model=SimpleNamespace(max_positions=lambda: (64, 64)),
        data_parallel_world_size=ranks,
        data_parallel_rank=rank,
        reset_dummy_batch=lambda batch: None,
    )
    made = Trainer.get_train_iterator(trainer, epoch=1, load_dataset=False)
    assert Trainer.get_train_iterator(trainer, epoch=1, load_dataset=False) is made
    return made


def seen(batches: Iterable[Any]) -> list[list[int]]:
    """The numbers of the sentences in each batch; none in a batch that only makes ranks equal."""
    return [sorted(batch["id"].tolist()) if batch else [] for batch in batches]


def test_the_grid_grows_by_its_ratio_and_ends_at_the_limit() -> None:
    rounded = [*range(12, 21, 2), *range(24, 41, 4), *range(48, 81, 8), 96]
    assert grid(1.15, 100).tolist() == [*range(1, 11), *rounded, 100]
    values = grid(1.5, 3000).tolist()
    assert values[-1] == 3000
    assert all(abs(after - 1.5 * before) <= 4 for before, after in zip(values[:-2], values[1:-1], strict=True))
    assert grid(1.0001, 9).tolist() == list(range(1, 10))


@given(lengths=LENGTHS, max_tokens=st.integers(40, 400), batch_size=st.none() | st.integers(1, 30))
@example(lengths=[(25, 25)] * 16 + [(40, 40)], max_tokens=200, batch_size=None)
def test_every_sentence_once_within_max_tokens_and_on_the_grid(lengths, max_tokens, batch_size):
    data = pairs(lengths)
    made = iterator(data, max_tokens=max_tokens, batch_size=batch_size)
    values = {side: set(grid(1.3, max(column)).tolist()) for side, column in enumerate(zip(*lengths, strict=True))}
    batches = list(made.next_epoch_itr())
    for batch in batches:
        shapes = batch["net_input"]["src_tokens"].shape, batch["target"].shape
        assert batch["net_input"]["prev_output_tokens"].shape == shapes[1]
        assert max(rows * length for rows, length in shapes) <= max_tokens
        assert len(batch["id"]) <= (batch_size or len(data))
        assert all(length in values[side] for side, (_, length) in enumerate(shapes))
    assert sorted(sum(seen(batches), [])) == list(range(len(data)))
    again = iterator(pairs(lengths), max_tokens=max_tokens, batch_size=batch_size)
    assert seen(again.next_epoch_itr()) == seen(batches)
    # A sentence that is longer than the model allows is left out, as fairseq leaves it out.
    longer = pairs([*lengths, (65, 3), (3, 65)])
    assert sorted(sum(seen(iterator(longer).next_epoch_itr()), [])) == list(range(len(data)))


@pytest.mark.parametrize(("graphs", "ratio"), [(True, 1.15), (False, 1)])
def test_the_default_is_a_grid_where_graphs_work(graphs: bool, ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_grid, "in_the_way", lambda trainer: [] if graphs else ["a reason"])
    lengths = [(length, length % 7 + 3) for length in range(3, 60)]
    default, stated = (
        [b["net_input"]["src_tokens"].shape for b in iterator(pairs(lengths), each, graphs=True).next_epoch_itr()]
        for each in (None, ratio)
    )
    assert default == stated
    on_grid = {length for _, length in default} <= set(grid(1.15, 59).tolist())
    assert on_grid == graphs


def test_no_length_is_above_a_limit() -> None:
    """The longest sentence is not in the batches, so its length is not the limit."""
    for longest, limit, settings in ((60, 64, {}), (55, 58, {"max_tokens": 58})):
        batches = list(iterator(pairs([(longest, 3)] * 5 + [(70, 3)]), 1.5, **settings).next_epoch_itr())
        assert {batch["net_input"]["src_tokens"].shape[1] for batch in batches} == {limit}
    lines = {line_of(iterator, pairs([(50, 3), (3, 3)]), ratio, max_tokens=40) for ratio in (None, 1.5)}
    assert len(lines) == 1
    assert str(*lines).startswith("--max-tokens 40 is smaller than the longest sentence, which has 50 tokens: ")


@given(lengths=LENGTHS)
def test_ranks_share_an_epoch_and_a_resumed_epoch_goes_on(lengths: list[tuple[int, int]]) -> None:
    whole = seen(iterator(pairs(lengths)).next_epoch_itr())
    of_rank = [seen(iterator(pairs(lengths), rank=rank, ranks=2).next_epoch_itr()) for rank in range(2)]
    assert len(of_rank[0]) == len(of_rank[1])
    assert [batch for both in zip(*of_rank, strict=True) for batch in both if batch] == whole
    begun = iterator(pairs(lengths))
    half = begun.next_epoch_itr()
    first = seen(next(half) for _ in range(len(whole) // 2))
    resumed = iterator(pairs(lengths))
    resumed.load_state_dict(begun.state_dict())
    assert first + seen(resumed.next_epoch_itr()) == whole


def test_pairs_in_the_same_place_of_the_grid_are_shuffled_by_the_seed() -> None:
    on_grid = OnGrid(pairs([(9, 10), (10, 9)] * 30), 1.3, 64)
    orders = []
    for seed in (1, 1, 2):
        with data_utils.numpy_seed(seed):
            orders.append(on_grid.ordered_indices().tolist())
    assert orders[0] == orders[1] != orders[2]
    assert np.unique(on_grid.padded).tolist() == [10]
    assert sorted(orders[0]) == list(range(60))


def assert_same_losses(model: torch.nn.Module, task: FairseqTask, *sides: Iterable[Any]) -> None:
    criterion = CrossEntropyCriterion(task, sentence_avg=False)
    with torch.no_grad():
        found, expected = ([criterion(model, batch)[:2] for batch in side] for side in sides)
    assert [size for _, size in found] == [size for _, size in expected]
    assert [float(loss) for loss, _ in found] == pytest.approx([float(loss) for loss, _ in expected], rel=1e-5)


def test_pads_of_the_grid_do_not_change_the_loss() -> None:
    draw = np.random.default_rng(1)
    data = pairs([tuple(pair) for pair in draw.integers(2, 40, (60, 2)).tolist()])
    batches = iterator(data, 1.5).frozen_batches
    on_grid, stock = ([d.collater([data[i] for i in ids]) for ids in batches] for d in (OnGrid(data, 1.5, 64), data))
    assert sum(grid["target"].numel() for grid in on_grid) > 1.05 * sum(batch["target"].numel() for batch in stock)
    assert [batch["ntokens"] for batch in on_grid] == [batch["ntokens"] for batch in stock]
    assert_same_losses(models.trained("admin_matt"), models.task(), on_grid, stock)


@pytest.mark.parametrize("bos", ["", "--add-bos-token"])
@pytest.mark.parametrize("mode", ["eos", "complete", "none"])
def test_a_language_model(characters: Path, tmp_path: Path, mode: str, bos: str) -> None:
    """Sentences have lengths on the grid, behind the mark of the beginning; blocks of one length keep theirs."""
    flags = f"--sample-break-mode {mode} --tokens-per-sample 31 --max-update 1".split() + bos.split()
    config = text.parse_training(characters, tmp_path, "post_ln_transformer_lm", *flags)
    task = LanguageModelingTask.setup_task(config.task)
    task.load_dataset("train")
    data, begin = task.dataset("train"), len(bos.split())
    on_grid = OnGrid(data, 1.5, 31)
    values, samples = set(grid(1.5, max(data.sizes)) + begin), [[data[i] for i in range(n, n + 4)] for n in (0, 5, 9)]
    model = models.tiny("post_ln_transformer_lm", target=len(task.dictionary)).eval()
    padded = [on_grid.collater(four) for four in samples]
    assert {batch["net_input"]["src_tokens"].shape[1] for batch in padded} <= values
    if mode == "none":
        assert {batch["target"].shape[1] for batch in padded} == {31 + begin}
    assert_same_losses(model, task, padded, map(data.collater, samples))


def shape_of(sample: Any) -> tuple[int, ...]:
    return tuple(sample["net_input"]["src_tokens"].shape)


def test_only_training_is_on_the_grid(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, validated = (watched(monkeypatch, step, shape_of) for step in ("train_step", "valid_step"))
    flags = "--max-epoch 2 --curriculum 1 --update-freq 2 --no-save --valid-subset train,valid".split()
    toy.train_toy(toy_data, tmp_path, *flags, "--length-grid", "2", validate=True)
    on_grid, seen_in_validation = set(trained), set(validated)
    lengths = [length for _, length in trained[: len(trained) // 2]]
    assert lengths == sorted(lengths)
    assert {length for _, length in on_grid} <= {1, 2, 4, 8, 10}
    assert {length for _, length in seen_in_validation} - {1, 2, 4, 8, 10}
    toy.train_toy(toy_data, tmp_path, *flags, validate=True)
    assert set(validated) == seen_in_validation


def test_hydra_knows_the_setting() -> None:
    with initialize_config_module("fairseq.config", version_base="1.1"):
        assert compose("config").dataset.length_grid is None
        assert compose("config", overrides=["dataset.length_grid=1.15"]).dataset.length_grid == 1.15


def test_what_is_refused(toy_data: Path, tmp_path: Path) -> None:
    for ratio in ("0.5", "-2", "inf", "nan"):
        line = refused(toy.parse_training, toy_data, tmp_path, f"--length-grid={ratio}")
        assert line == f"--length-grid must be at least 1, not {float(ratio)}"
    expected = "--length-grid is for sentence pairs and language models, without --num-batch-buckets"
    flags = ("--length-grid", "1.2", "--num-batch-buckets", "4", "--max-epoch", "1")
    assert refused(toy.train_toy, toy_data, tmp_path, *flags) == expected
    assert refused(iterator, BaseWrapperDataset(pairs([(2, 3)]))) == expected


def test_an_upsampled_corpus_is_seen_as_often_as_it_is_to_be(toy_data, tmp_path, monkeypatch):
    data = tmp_path / "data-bin"
    data.mkdir()
    for file in toy_data.iterdir():
        (data / file.name).symlink_to(file)
        if file.name.startswith("valid"):
            (data / file.name.replace("valid", "train1")).symlink_to(file)
    seen = watched(monkeypatch, "train_step")
    flags = "--upsample-primary 2 --length-grid 1.2 --max-epoch 1 --no-save".split()
    toy.train_toy(data, tmp_path / "run", *flags)
    assert sorted(sum(seen, [])) == list(range(2 * toy.SIZES["train"] + toy.SIZES["valid"]))
