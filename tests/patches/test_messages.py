"""The table of messages: each row on the error that fairseq really raises, and nothing for any other error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary

from fairseq_plugins.patches.messages import wrong_setting
from fairseq_plugins.process import users_mistake
from tests import toy


def line_of(command: Callable[..., object], *words: object) -> str | None:
    """The line in which a command ends that calls this; None if it keeps its trace."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  (which one is fairseq's choice)
        command(*words)
    mistake = users_mistake(caught.value)
    return None if mistake is None else str(mistake)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a 3\nb\t3\n", "line 2: 'b\t3' is not a word and its count, separated by a space, not a tab"),
        (b"a 3\nb\n", "line 2: 'b' is not a word and its count"),
        (b"a 3\n\nb 3\n", "line 2: '' is not a word and its count"),
        (b"a 3\nb 1.5\n", "line 2: 'b 1.5' is not a word and its count"),
        (b"a 3\nb \n", "line 2: 'b' is not a word and its count"),
        (b"x" * 99, f"line 1: '{'x' * 80}...' is not a word and its count"),
        (b"a 3\nb 2\na 1\n", "line 3: the word 'a' is in line 1 already; remove it, or end the line in "),
        (b"a 3\n<pad> 3\n", "line 2: the word '<pad>' is one that fairseq adds itself; remove it, or end the line in "),
        (b"a 3\nb\r3\n", "line 2: carriage return inside the line, where fairseq splits it; remove it"),
        (b"a 3\n\xff 3\n", "line 2: not UTF-8 (byte 0xff)"),
        (b"\xef\xbb\xbfa 3\n", "line 1: begins with a byte order mark; remove it"),
    ],
)
def test_a_dictionary(content: bytes, line: str, tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_bytes(content)
    expected = f"{path}: {line}" + ("#fairseq:overwrite" if line.endswith("line in ") else "")
    assert line_of(Dictionary.load, str(path)) == expected


def test_what_fairseq_reads_is_read(tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_text("a 3\nb c 2\n<pad> 1 #fairseq:overwrite\n", encoding="utf-8")
    assert Dictionary.load(str(path)).symbols[4:] == ["a", "b c", "<pad>"]


def test_a_checkpoint_of_a_deeper_and_wider_model(toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    flags = ("--encoder-layers", "3", "--decoder-layers", "1", "--decoder-ffn-embed-dim", "48", "--max-update", "5")
    line = line_of(toy.train_toy, toy_data, tmp_path / "run", "--restore-file", str(toy_checkpoint), *flags)
    assert line is not None
    assert line.startswith(f"checkpoint {toy_checkpoint} is of another architecture or dictionary: ")
    # An encoder layer holds 16 tensors, a decoder layer 26; fc1 and its bias and fc2 depend on the inner width.
    assert "16 weights are missing from it (encoder.layers.2." in line
    assert "26 weights are unknown to the model (decoder.layers.1." in line
    assert "3 weights have another shape (decoder.layers.0.fc1.weight: (32, 16) in it, (48, 16) in the model" in line


def test_a_checkpoint_with_another_number_of_words(toy_checkpoint: Path, tmp_path: Path) -> None:
    toy.write_corpus(tmp_path / "text", {"train": 30, "test": 8})
    for split in ("train", "test"):
        path = tmp_path / "text" / f"{split}.de"
        path.write_text(path.read_text(encoding="utf-8").replace("eins", "ein uns"), encoding="utf-8")
    # One more word; fairseq fills a dictionary up to a multiple of eight.
    data = toy.binarise_text(tmp_path, ("train", "test"))
    line = line_of(toy.translate_toy, data, toy_checkpoint, tmp_path / "results")
    assert line is not None
    assert line.startswith(f"checkpoint {toy_checkpoint} is of another architecture or dictionary: ")
    assert "embed_tokens.weight: (24, 16) in it, (32, 16) in the model" in line


@pytest.mark.parametrize(
    ("group", "name", "value", "problem"),
    [
        ("model", "_name", "no_such_model", "unknown model 'no_such_model'"),
        (
            "model",
            "encoder_layers",
            "two",
            "its setting model.encoder_layers is 'two': Value 'two' of type 'str' could",
        ),
        ("model", "dropout", [1], "its setting model.dropout is '[1]': "),
    ],
)
def test_a_checkpoint_with_a_damaged_setting(
    group: str, name: str, value: object, problem: str, toy_data: Path, tmp_path: Path
) -> None:
    good = toy.train_toy(toy_data, tmp_path, "--max-update", "1", arch="post_ln_transformer")
    state = torch.load(good, weights_only=True)
    assert wrong_setting(state) is None
    state["cfg"][group][name] = value
    torch.save(state, tmp_path / "damaged.pt")
    line = line_of(checkpoint_utils.load_model_ensemble, [str(good), str(tmp_path / "damaged.pt")])
    assert str(line).startswith(f"checkpoint {tmp_path}/damaged.pt is damaged: {problem}")


def test_a_failure_of_another_kind_keeps_its_trace(toy_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", broken)
    assert line_of(checkpoint_utils.load_model_ensemble, [str(toy_checkpoint)]) is None


def test_a_sentence_that_is_too_long(toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    lengths = [len(source.split()) + 1 for source, _ in toy.sentence_pairs(toy.SIZES["test"], 3)]
    longest = max(lengths)
    limits = ("--max-source-positions", str(longest - 1), "--max-target-positions", "1000")
    assert line_of(toy.translate_toy, toy_data, toy_checkpoint, tmp_path, *limits) == (
        f"sentence {lengths.index(longest) + 1} has {longest} and {longest} tokens with the end mark, at most "
        f"{longest - 1} and 1,000 are possible with this model and its --max-source-positions and "
        f"--max-target-positions; shorten it, or skip such sentences ({lengths.count(longest)} in all) with "
        "--skip-invalid-size-inputs-valid-test"
    )
