"""``--bf16`` leaves the TPU alone, and a tokenizer learns the languages from the data."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests import toy


@pytest.fixture
def stock_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "parse_args_and_arch", inspect.unwrap(options.parse_args_and_arch))


def test_stock_bf16_means_tpu(toy_data: Path, tmp_path: Path, stock_parser: None) -> None:
    assert toy.parse_training(toy_data, tmp_path, "--bf16").common.tpu


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_trains_here(flag: str, toy_data: Path, tmp_path: Path) -> None:
    checkpoint = toy.train_toy(toy_data, tmp_path, flag, "--max-update", "3")
    state = torch.load(checkpoint, weights_only=True)
    # fairseq stores every weight in float32; what bfloat16 cannot hold would show.
    assert all(torch.equal(weight, weight.bfloat16().float()) for weight in state["model"].values())
    assert state["optimizer_history"][-1]["num_updates"] == 3


def test_a_tpu_that_was_asked_for_stays(toy_data: Path, tmp_path: Path) -> None:
    assert toy.parse_training(toy_data, tmp_path, "--bf16", "--tpu").common.tpu


def generation_with_moses(data: Path, *flags: str):
    arguments = [str(data), "--path", "model.pt", "--tokenizer", "moses", *flags]
    return convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
    )


def test_stock_tokenizer_wants_the_languages(toy_data: Path, stock_parser: None) -> None:
    with pytest.raises(Exception, match="tokenizer.source_lang=null"):
        generation_with_moses(toy_data)


def test_tokenizer_languages_come_from_the_data(toy_data: Path) -> None:
    tokenizer = generation_with_moses(toy_data).tokenizer
    assert (tokenizer.source_lang, tokenizer.target_lang) == ("de", "en")


def test_given_languages_win(toy_data: Path) -> None:
    tokenizer = generation_with_moses(toy_data, "-s", "en", "-t", "de").tokenizer
    assert (tokenizer.source_lang, tokenizer.target_lang) == ("en", "de")
