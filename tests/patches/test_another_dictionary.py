"""A model is used with the languages and dictionaries of its training, and with no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins.errors import EXIT_CODE
from fairseq_plugins.patches import another_training
from fairseq_plugins.patches.another_dictionary import TRAINED_ON, recorded
from fairseq_plugins.translator.packaging import main as package
from tests import toy
from tests.language_model import text as language_model
from tests.processes import Command

COMMANDS = {
    "generate": "--beam 1 --max-len-b 5",
    "interactive": "--beam 1 --input {lines}",
    "validate": "--max-tokens 400 --valid-subset valid",
}


def other_dictionary(model: Path, which: str, data: Path) -> str:
    return (
        f"error: checkpoint {model} was not trained with the {which} of {data} (other words, or another order): give "
        "the directory that it was trained on, or binarise the text with its dictionaries (--srcdict, --tgtdict)"
    )


def swapped(data: Path, place: Path, name: str = "dict.de.txt") -> Path:
    """A copy of binarised data with a dictionary in another order, in which fairseq itself sees no difference."""
    shutil.copytree(data, place)
    before = Dictionary.load(str(data / name))
    lines = (data / name).read_text(encoding="utf-8").splitlines(keepends=True)
    (place / name).write_text("".join(lines[::-1]), encoding="utf-8")
    after = Dictionary.load(str(place / name))
    assert (len(before), before.symbols != after.symbols) == (len(after), True)
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_compares(
    command: str, toy_data: Path, toy_checkpoint: Path, tmp_path: Path, fairseq_deep: Command
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("eins\n", encoding="utf-8")

    def run(data: Path, *words: str, model: Path = toy_checkpoint) -> tuple[int, str]:
        flags = COMMANDS[command].format(lines=lines).split()
        ended = fairseq_deep(command, str(data), "--path", str(model), "--cpu", *flags, *words)
        return ended.code, ended.error if ended.code else ""

    assert run(toy_data) == (0, "")
    other = swapped(toy_data, tmp_path / "other")
    assert run(other) == (EXIT_CODE, other_dictionary(toy_checkpoint, "source dictionary", other))
    opposite = (
        "error: checkpoint {} translates de to en, not en to de: give --source-lang de --target-lang en, or a "
        "checkpoint of the other direction"
    )
    assert run(toy_data, "-s", "en", "-t", "de") == (EXIT_CODE, opposite.format(toy_checkpoint))
    # As stock fairseq writes it after `-s de -t en`: any dictionary of that size is taken.
    state = torch.load(toy_checkpoint, weights_only=True)
    del state["extra_state"][TRAINED_ON]
    state["cfg"]["task"].update(source_lang="de", target_lang="en")
    stock = tmp_path / "stock.pt"
    torch.save(state, stock)
    assert run(other, model=stock) == (0, "")
    assert run(toy_data, "-s", "en", "-t", "de", model=stock) == (EXIT_CODE, opposite.format(stock))


def test_a_model_does_without_the_vectors_that_its_training_began_with(
    toy_data: Path, tmp_path: Path, fairseq_deep: Command
) -> None:
    (tmp_path / "vectors").write_text(f"1 16\neins {' '.join(['1'] * 16)}\n", encoding="utf-8")
    flags = ("--encoder-embed-path", str(tmp_path / "vectors"), "--max-update", "1")
    model = toy.train_toy(toy_data, tmp_path / "run", *flags, arch="post_ln_transformer")
    (tmp_path / "vectors").unlink()
    words = ("--path", str(model), "--cpu", "--max-tokens", "400", "--beam", "1", "--max-len-b", "2")
    assert fairseq_deep("generate", str(toy_data), *words).code == 0


def test_a_language_model(tmp_path: Path, fairseq_deep: Command) -> None:
    made = language_model.binarise(tmp_path)
    model = language_model.train(made, tmp_path / "saved", "admin_transformer_lm", "--max-update", "1")
    words = ("--path", str(model), "--cpu", "--max-tokens", "400")
    assert fairseq_deep("eval-lm", str(made), *words).code == 0
    other = swapped(made, tmp_path / "other", "dict.txt")
    which = "source dictionary and the target dictionary"
    assert fairseq_deep("eval-lm", str(other), *words).error == other_dictionary(model, which, other)


def test_package(toy_data: Path, toy_checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = swapped(toy_data, tmp_path / "other", "dict.en.txt")
    (other / "text.json").write_text('{"tokeniser": "none"}')
    assert package([str(toy_checkpoint), str(tmp_path / "package"), "--data", str(other)]) == EXIT_CODE
    assert capfd.readouterr().err == other_dictionary(toy_checkpoint, "target dictionary", other) + "\n"
    assert not (tmp_path / "package").exists()
    assert [recorded(state) for state in ([1], {"args": None, "cfg": None}, {"extra_state": None})] == [{}, {}, {}]


def test_fingerprints_are_compared_as_text(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0031e8453278 and 0031e8453279 would be the same number, infinity."""
    last = toy.train_toy(toy_data, tmp_path, "--max-update", "1", arch="admin_transformer")
    state = torch.load(last, weights_only=True)
    state["extra_state"][TRAINED_ON]["source_dictionary"] = "0031e8453278"
    torch.save(state, last)
    now = {**state["extra_state"][TRAINED_ON], "source_dictionary": "0031e8453279"}
    monkeypatch.setattr(another_training, "trained_on", lambda task: now)
    with pytest.raises(ValueError, match=r"\(source_dictionary: 0031e8453279, was 0031e8453278\)"):
        toy.train_toy(toy_data, tmp_path, "--max-update", "2", arch="admin_transformer")
