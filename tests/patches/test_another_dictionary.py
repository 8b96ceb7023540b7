"""A model is used with the languages and dictionaries of its training, and with no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins.checkpoints.average import main as average
from fairseq_plugins.errors import EXIT_CODE
from fairseq_plugins.patches import another_training
from fairseq_plugins.patches.another_dictionary import TRAINED_ON, recorded
from fairseq_plugins.translator.packaging import main as package
from tests import toy
from tests.language_model import text as language_model
from tests.processes import Command

COMMANDS = {
    "generate": ("--beam", "1", "--max-len-b", "5"),
    "interactive": ("--beam", "1", "--input", "{data}/lines"),
    "validate": ("--max-tokens", "400", "--valid-subset", "valid"),
}
OTHER_DICTIONARY = (
    "error: checkpoint {model} was not trained with the {which} of {data} (other words, or another order): give the "
    "directory that it was trained on, or binarise the text with its dictionaries (--srcdict, --tgtdict)"
)


def swapped(data: Path, place: Path, language: str = "de") -> Path:
    """A copy of binarised data where two words of a dictionary have changed places."""
    shutil.copytree(data, place)
    dictionary = place / f"dict.{language}.txt"
    first, second, *rest = dictionary.read_text(encoding="utf-8").splitlines(keepends=True)
    dictionary.write_text("".join([second, first, *rest]), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def data(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy corpus in a directory that is a data set for both directions, and a line of text."""
    place = tmp_path_factory.mktemp("both") / "data-bin"
    shutil.copytree(toy_data, place)
    (place / "lines").write_text("eins\n", encoding="utf-8")
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_compares(
    command: str, data: Path, toy_checkpoint: Path, tmp_path: Path, fairseq_deep: Command
) -> None:
    def run(data: Path, *words: str) -> tuple[int, str]:
        flags = [word.format(data=data) for word in COMMANDS[command]]
        ended = fairseq_deep(command, str(data), "--path", str(toy_checkpoint), "--cpu", *flags, *words)
        return ended.code, ended.error if ended.code else ""

    assert run(data) == (0, "")
    other = swapped(data, tmp_path / "other")
    expected = OTHER_DICTIONARY.format(model=toy_checkpoint, which="source dictionary", data=other)
    assert run(other) == (EXIT_CODE, expected)
    assert run(data, "-s", "en", "-t", "de") == (
        EXIT_CODE,
        f"error: checkpoint {toy_checkpoint} translates de to en, not en to de: give "
        "--source-lang de --target-lang en, or a checkpoint of the other direction",
    )


def test_the_direction_of_a_checkpoint_without_dictionaries(
    data: Path, toy_checkpoint: Path, tmp_path: Path, fairseq_deep: Command
) -> None:
    """As stock fairseq writes it after ``-s de -t en``: any dictionary of that size is taken."""
    state = torch.load(toy_checkpoint, weights_only=True)
    del state["extra_state"][TRAINED_ON]
    state["cfg"]["task"].update(source_lang="de", target_lang="en")
    torch.save(state, tmp_path / "stock.pt")
    words = ("--path", str(tmp_path / "stock.pt"), "--cpu", *COMMANDS["generate"])
    assert fairseq_deep("generate", str(swapped(data, tmp_path / "other")), *words).code == 0
    assert (
        "translates de to en, not en to de" in fairseq_deep("generate", str(data), *words, "-s", "en", "-t", "de").error
    )


@pytest.mark.parametrize("state", [[1], {"args": None, "cfg": None}, {"extra_state": None}])
def test_a_file_that_says_nothing(state: object) -> None:
    assert recorded(state) == {}


def test_a_language_model(tmp_path: Path, fairseq_deep: Command) -> None:
    made = language_model.binarise(tmp_path)
    model = language_model.train(made, tmp_path / "saved", "admin_transformer_lm", "--max-update", "1")
    words = ("--path", str(model), "--cpu", "--max-tokens", "400")
    assert fairseq_deep("eval-lm", str(made), *words).code == 0
    other = tmp_path / "other"
    shutil.copytree(made, other)
    lines = (other / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (other / "dict.txt").write_text("".join(lines[::-1]), encoding="utf-8")
    which = "source dictionary and the target dictionary"
    assert fairseq_deep("eval-lm", str(other), *words).error == OTHER_DICTIONARY.format(
        model=model, which=which, data=other
    )


def test_average_and_package(
    data: Path, toy_checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    averaged = tmp_path / "averaged.pt"
    assert average(["--inputs", str(toy_checkpoint), str(toy_checkpoint), "--output", str(averaged)]) == 0
    other = swapped(data, tmp_path / "other", "en")
    capfd.readouterr()
    words = ["--tokenised", "none", "--remove-bpe", "none", "--data", str(other)]
    assert package([str(averaged), str(tmp_path / "package"), *words]) == EXIT_CODE
    expected = OTHER_DICTIONARY.format(model=averaged, which="target dictionary", data=other)
    assert capfd.readouterr().err == expected + "\n"
    assert not (tmp_path / "package").exists()


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


def test_a_dictionary_in_another_order_has_another_fingerprint(toy_data: Path, tmp_path: Path) -> None:
    """What the other tests rest on: fairseq itself sees no difference."""
    words, other = (
        Dictionary.load(str(place / "dict.de.txt")) for place in (toy_data, swapped(toy_data, tmp_path / "other"))
    )
    assert len(words) == len(other)
    assert words.symbols != other.symbols
