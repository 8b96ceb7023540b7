"""Every sentence of a data set is in exactly one batch, and the other batches are fairseq's own."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from fairseq import options
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from fairseq_cli import validate
from hypothesis import given
from hypothesis import strategies as st

from tests import toy


def batches(lengths: list[int], multiple: int, **limits: int) -> list[list[int]]:
    sizes = np.array(lengths, dtype=np.int64)
    order = np.arange(len(sizes))
    made = data_utils.batch_by_size(
        order, num_tokens_fn=lambda i: sizes[i], num_tokens_vec=sizes, required_batch_size_multiple=multiple, **limits
    )
    return [list(batch) for batch in made]


def test_stock_drops_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_utils, "batch_by_size", inspect.unwrap(data_utils.batch_by_size))
    assert sum(map(len, batches([7] * 60, multiple=8, max_tokens=12000))) == 56
    assert batches([7] * 5, multiple=8, max_tokens=12000) == []


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=70),
    multiple=st.sampled_from([1, 2, 8]),
    max_tokens=st.integers(40, 400),
    max_sentences=st.integers(1, 30),
)
def test_every_sentence_once_and_other_batches_untouched(
    lengths: list[int], multiple: int, max_tokens: int, max_sentences: int
) -> None:
    made = batches(sorted(lengths), multiple, max_tokens=max_tokens, max_sentences=max_sentences)
    assert [i for batch in made for i in batch] == list(range(len(lengths)))
    assert all(len(batch) <= max_sentences for batch in made)
    assert all(max(sorted(lengths)[i] for i in batch) * len(batch) <= max_tokens for batch in made)
    sizes = np.array(sorted(lengths), dtype=np.int64)
    stock = inspect.unwrap(data_utils.batch_by_size)(
        np.arange(len(sizes)), lambda i: sizes[i], sizes, max_tokens, max_sentences, multiple
    )
    assert made[: len(stock)] == [list(batch) for batch in stock]


def test_no_sentence_makes_no_batch() -> None:
    assert batches([], multiple=8, max_tokens=100) == []


@pytest.mark.parametrize("count", [60, 5])
def test_training_sees_every_sentence(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy.binarise(tmp_path, {"train": count, "valid": 5})
    seen: list[int] = []
    train_step = TranslationTask.train_step

    def watch(self, sample, model, *args, **kwargs):  # type: ignore[no-untyped-def]
        seen.extend(sample["id"].tolist())
        return train_step(self, sample, model, *args, **kwargs)

    monkeypatch.setattr(TranslationTask, "train_step", watch)
    toy.train_toy(data, tmp_path / "run", "--max-epoch", "1", "--no-save", "--max-tokens", "4000")
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("split", ["valid", "test"])
def test_generation_translates_every_sentence(split: str, toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    translations = toy.translate_toy(toy_data, toy_checkpoint, tmp_path, split=split)
    assert sorted(translations) == list(range(toy.SIZES[split]))


def test_five_sentences_are_translated(toy_checkpoint: Path, tmp_path: Path) -> None:
    data = toy.binarise(tmp_path, {"train": 120, "test": 5})
    assert sorted(toy.translate_toy(data, toy_checkpoint, tmp_path / "results")) == list(range(5))


def test_validation_scores_every_sentence(toy_data: Path, toy_checkpoint: Path) -> None:
    arguments = [
        str(toy_data),
        "--path",
        str(toy_checkpoint),
        "--valid-subset",
        "test",
        "--cpu",
        "--task",
        "translation",
    ]
    args = options.parse_args_and_arch(options.get_validation_parser(), input_args=[*arguments, "--max-tokens", "400"])
    seen: list[int] = []
    valid_step = TranslationTask.valid_step

    def watch(self, sample, model, criterion):  # type: ignore[no-untyped-def]
        seen.extend(sample["id"].tolist())
        return valid_step(self, sample, model, criterion)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationTask, "valid_step", watch)
        validate.main(convert_namespace_to_omegaconf(args))
    assert sorted(seen) == list(range(60))
