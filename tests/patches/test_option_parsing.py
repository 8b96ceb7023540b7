"""``--bf16`` leaves the TPU alone, and a tokenizer learns the languages from the data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests import toy
from tests.patches.conftest import Unpatch


def generation_with_moses(data: Path, *flags: str):
    arguments = [str(data), "--path", "model.pt", "--tokenizer", "moses", *flags]
    return convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
    ).tokenizer


def test_stock_means_a_tpu_and_wants_the_languages(toy_data: Path, tmp_path: Path, unpatch: Unpatch) -> None:
    unpatch(options, "parse_args_and_arch")
    assert toy.parse_training(toy_data, tmp_path, "--bf16").common.tpu
    with pytest.raises(Exception, match="tokenizer.source_lang=null"):
        generation_with_moses(toy_data)


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_trains_here(flag: str, toy_data: Path, tmp_path: Path) -> None:
    checkpoint = toy.train_toy(toy_data, tmp_path, flag, "--max-update", "3")
    state = torch.load(checkpoint, weights_only=True)
    # fairseq stores every weight in float32; what bfloat16 cannot hold would show.
    assert all(torch.equal(weight, weight.bfloat16().float()) for weight in state["model"].values())
    assert state["optimizer_history"][-1]["num_updates"] == 3


def test_a_tpu_that_was_asked_for_stays(toy_data: Path, tmp_path: Path) -> None:
    assert toy.parse_training(toy_data, tmp_path, "--bf16", "--tpu").common.tpu


def test_tokenizer_languages_come_from_the_data_unless_given(toy_data: Path) -> None:
    for flags, languages in ((), ("de", "en")), (("-s", "en", "-t", "de"), ("en", "de")):
        tokenizer = generation_with_moses(toy_data, *flags)
        assert (tokenizer.source_lang, tokenizer.target_lang) == languages
