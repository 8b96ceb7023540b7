"""A model is used with the languages and dictionaries of its training, and with no others."""

import logging
import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins.errors import EXIT_CODE, UserError
from fairseq_plugins.integrity import TRAINED_ON, recorded
from fairseq_plugins.patches import resume_mismatch
from tests import toy
from tests.language_model import text as language_model
from tests.processes import Command
from tests.refusals import refused

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
    shutil.copytree(data, place, ignore=shutil.ignore_patterns("sha256sums"))
    before = Dictionary.load(str(data / name))
    lines = (data / name).read_text(encoding="utf-8").splitlines(keepends=True)
    (place / name).write_text("".join(lines[::-1]), encoding="utf-8")
    after = Dictionary.load(str(place / name))
    assert (len(before), before.symbols != after.symbols) == (len(after), True)
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_compares(command, toy_data, toy_checkpoint, tmp_path, fairseq_deep):
    lines = tmp_path / "lines"
    lines.write_text("eins\n", encoding="utf-8")

    def run(data: Path, *words: str, model: Path = toy_checkpoint) -> tuple[int, str]:
        flags = COMMANDS[command].format(lines=lines).split()
        ended = fairseq_deep(command, str(data), "--path", str(model), "--cpu", *flags, *words)
        return ended.code, ended.error if ended.code else ""

    assert run(toy_data) == (0, "")
    other = swapped(toy_data, tmp_path / "other")
    assert run(other) == (EXIT_CODE, other_dictionary(toy_checkpoint, "source dictionary", other))
    if command != "validate":
        return  # the rest is compared when any command loads the model
    opposite = (
        "error: checkpoint {} translates de to en, not en to de: give --source-lang de --target-lang en, or a "
        "checkpoint of the other direction"
    )
    assert run(toy_data, "-s", "en", "-t", "de") == (EXIT_CODE, opposite.format(toy_checkpoint))
    # Stock fairseq writes this after `-s de -t en`: any dictionary of that size is taken.
    state = torch.load(toy_checkpoint, weights_only=True)
    del state["extra_state"][TRAINED_ON]
    state["cfg"]["task"].update(source_lang="de", target_lang="en")
    stock = tmp_path / "stock.pt"
    torch.save(state, stock)
    assert run(other, model=stock) == (0, "")
    assert run(toy_data, "-s", "en", "-t", "de", model=stock) == (EXIT_CODE, opposite.format(stock))


def test_a_model_does_without_the_vectors_of_its_start(toy_data: Path, tmp_path: Path, fairseq_deep: Command) -> None:
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


def test_a_checkpoint_may_record_nothing() -> None:
    assert [recorded(state) for state in ([1], {"args": None, "cfg": None}, {"extra_state": None})] == [{}, {}, {}]


def test_fingerprints_are_compared_as_text(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0031e8453278 and 0031e8453279 would be the same number, infinity."""
    last = toy.train_toy(toy_data, tmp_path, "--max-update", "1", arch="admin_transformer")
    state = torch.load(last, weights_only=True)
    state["extra_state"][TRAINED_ON]["source_dictionary"] = "0031e8453278"
    torch.save(state, last)
    now = {**state["extra_state"][TRAINED_ON], "source_dictionary": "0031e8453279"}
    monkeypatch.setattr(resume_mismatch, "trained_on", lambda task: now)
    with pytest.raises(ValueError, match=r"\(source_dictionary: 0031e8453279, was 0031e8453278\)"):
        toy.train_toy(toy_data, tmp_path, "--max-update", "2", arch="admin_transformer")


# --- a training that starts from a model with other words -------------------------------------------------------------

STILL = ("--lr", "1e-30", "--max-update", "1", "--no-epoch-checkpoints")
"""One update that changes no weight."""
RESET = "--reset-optimizer --reset-lr-scheduler --reset-meters --reset-dataloader"
AVERAGED = ("--store-ema", "--ema-fp32", "--ema-decay", "1")


def with_other_words(data: Path, place: Path, dropped: str, new: str) -> Path:
    """A copy of binarised data whose dictionaries are in another order, without one word and with others."""
    shutil.copytree(data, place, ignore=shutil.ignore_patterns("sha256sums"))
    for path in place.glob("dict*.txt"):
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in reversed(lines) if line.split()[0] != dropped]
        path.write_text("".join(f"{line}\n" for line in [f"{new}1 1", *kept, f"{new}2 1"]), encoding="utf-8")
    return place


def rows_by_word(checkpoint: Path, entry: str, table: str, data: Path, name: str) -> dict[str, torch.Tensor]:
    state = torch.load(checkpoint, weights_only=True)
    words = Dictionary.load(str(data / name)).symbols
    table_of = state["model"] if entry == "model" else state["extra_state"][entry]
    return dict(zip(words, table_of[table], strict=True))


@pytest.mark.parametrize(
    ("flags", "start"),
    [
        pytest.param((), "--finetune-from-model {}", id="three tables", marks=pytest.mark.slow),
        pytest.param(("--share-all-embeddings",), "--finetune-from-model {}", id="one table", marks=pytest.mark.slow),
        pytest.param(AVERAGED, f"--restore-file {{}} {RESET}", id="average", marks=pytest.mark.slow),
        pytest.param(("--bf16", *AVERAGED), "--finetune-from-model {}", id="bf16"),
    ],
)
def test_rows_follow_their_words(flags, start, toy_data, tmp_path, caplog):
    """A new word has the row that a new model draws for it."""

    def train(data: Path, name: str, *more: str) -> Path:
        return toy.train_toy(data, tmp_path / name, *flags, *more, arch="post_ln_transformer")

    model = train(toy_data, "model", "--max-update", "3")
    other = with_other_words(toy_data, tmp_path / "other", dropped="eins", new="zwölf")
    begun = train(other, "begun", *STILL)
    with caplog.at_level(logging.INFO):
        tuned = train(other, "tuned", *start.format(model).split(), *STILL)
    for which in ("source dictionary", "target dictionary"):
        said = f"{which}: 2 new words ['zwölf1', 'zwölf2'], 1 dropped ['eins']"
        assert f"checkpoint {model}: {said}" in caplog.messages
    tables = [("model", f"{table}.weight") for table in ("encoder.embed_tokens", "decoder.output_projection")]
    tables += [("ema", "decoder.embed_tokens.weight")] if "--store-ema" in flags else []
    tables += [("ema_fp32_params", "decoder.embed_tokens.weight")] if "--bf16" in flags else []
    for entry, table in tables:
        before, after, drawn = (
            rows_by_word(path, entry, table, data, "dict.de.txt")
            for path, data in ((model, toy_data), (tuned, other), (begun, other))
        )
        assert after.keys() - before.keys() == {"zwölf1", "zwölf2"}
        for word, row in after.items():
            torch.testing.assert_close(row, before.get(word, drawn[word]), rtol=0, atol=1e-20)


def test_rows_of_an_adaptive_softmax_cannot_follow(tmp_path: Path) -> None:
    made = language_model.binarise(tmp_path)
    other = with_other_words(made, tmp_path / "other", dropped="a", new="é")
    adaptive = ("--adaptive-softmax-cutoff", "5,10", "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp")
    model = language_model.train(made, tmp_path / "adaptive", "admin_transformer_lm", *adaptive, "--max-update", "1")
    with pytest.raises(UserError, match="the target dictionary of .*, and its rows cannot follow their words"):
        language_model.train(
            other, tmp_path / "no", "admin_transformer_lm", *adaptive, "--finetune-from-model", str(model), *STILL
        )


def test_rows_that_cannot_follow(toy_data, toy_checkpoint, tmp_path, caplog):
    """A plain resumption, whose moments have rows as well; and checkpoints that do not hold their words."""
    other = swapped(toy_data, tmp_path / "other")
    resumed = ("--restore-file", str(toy_checkpoint), "--max-update", "9")
    end = f"--tgtdict), or start a new training from its weights (--finetune-from-model {toy_checkpoint})"
    assert refused(toy.train_toy, other, tmp_path / "resumed", *resumed).endswith(end)
    state = torch.load(toy_checkpoint, weights_only=True)
    of_training = state["extra_state"].pop(TRAINED_ON)
    older = {name: of_training[name] for name in ("source_dictionary", "target_dictionary")}
    for name, facts in (("stock", {}), ("older", {TRAINED_ON: older})):
        state["extra_state"] = {**state["extra_state"], **facts}
        torch.save(state, tmp_path / f"{name}.pt")
    flags = ("--finetune-from-model", str(tmp_path / "older.pt"), "--max-update", "1")
    line = refused(toy.train_toy, other, tmp_path / "tuned", *flags)
    assert "the source dictionary of" in line
    assert "cannot follow their words: it does not hold them" in line
    assert toy.train_toy(toy_data, tmp_path / "same", *flags).exists()
    flags = ("--finetune-from-model", str(tmp_path / "stock.pt"), "--max-update", "1")
    assert toy.train_toy(other, tmp_path / "tuned", *flags).exists()
    assert caplog.text.count("stock.pt does not hold its dictionaries: its rows are used for the words of") == 1
