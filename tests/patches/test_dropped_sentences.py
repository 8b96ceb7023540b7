"""Every sentence of a data set is in exactly one batch, and the other batches are fairseq's own."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from fairseq import options
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import validate
from hypothesis import given
from hypothesis import strategies as st

from tests import toy
from tests.patches.conftest import watched
from tests.refusals import refused


def batches(lengths: list[int], multiple: int, *limits: int, stock: bool = False) -> list[list[int]]:
    sizes = np.array(lengths, dtype=np.int64)
    make = inspect.unwrap(data_utils.batch_by_size) if stock else data_utils.batch_by_size
    return [list(batch) for batch in make(np.arange(len(sizes)), lambda i: sizes[i], sizes, *limits, multiple)]


def test_stock_drops_sentences() -> None:
    assert sum(map(len, batches([7] * 60, 8, 12000, -1, stock=True))) == 56
    assert batches([7] * 5, 8, 12000, -1, stock=True) == []
    assert batches([], 8, 100, -1) == []


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=70).map(sorted),
    multiple=st.sampled_from([1, 2, 8]),
    max_tokens=st.integers(40, 400),
    max_sentences=st.integers(1, 30),
)
def test_every_sentence_once_and_other_batches_untouched(
    lengths: list[int], multiple: int, max_tokens: int, max_sentences: int
) -> None:
    made = batches(lengths, multiple, max_tokens, max_sentences)
    assert [i for batch in made for i in batch] == list(range(len(lengths)))
    assert all(len(batch) <= max_sentences for batch in made)
    assert all(max(lengths[i] for i in batch) * len(batch) <= max_tokens for batch in made)
    stock = batches(lengths, multiple, max_tokens, max_sentences, stock=True)
    assert made[: len(stock)] == stock


def test_training_sees_every_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy.binarise(tmp_path, {"train": 5, "valid": 5})
    seen = watched(monkeypatch, "train_step")
    toy.train_toy(data, tmp_path / "run", "--max-epoch", "1", "--no-save", "--max-tokens", "4000")
    assert sorted(sum(seen, [])) == list(range(5))


def test_generation_and_validation_take_every_sentence(
    toy_data: Path, toy_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(toy.translate_toy(toy_data, toy_checkpoint, tmp_path)) == list(range(60))
    one, other = (
        toy.translate_toy(toy_data, toy_checkpoint, tmp_path / shard, "--num-shards", "2", "--shard-id", shard)
        for shard in "01"
    )
    assert sorted([*one, *other]) == list(range(60))
    assert min(len(one), len(other)) > 0
    flags = ("--num-shards", "2", "--shard-id", "2")
    line = "--shard-id must be from 0 to 1 with --num-shards 2, not 2"
    assert refused(toy.translate_toy, toy_data, toy_checkpoint, tmp_path, *flags) == line
    few = toy.binarise(tmp_path, {"train": 120, "test": 5})
    assert sorted(toy.translate_toy(few, toy_checkpoint, tmp_path / "few")) == list(range(5))
    words = f"{toy_data} --path {toy_checkpoint} --valid-subset test --cpu --task translation --max-tokens 400"
    args = options.parse_args_and_arch(options.get_validation_parser(), input_args=words.split())
    seen = watched(monkeypatch, "valid_step")
    validate.main(convert_namespace_to_omegaconf(args))
    assert sorted(sum(seen, [])) == list(range(60))
