"""Decoding a run and reading its translations: settings, counts, order, nothing lost."""

from __future__ import annotations

import hashlib
import json
import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline import averaging, decoding, evaluate
from fairseq_plugins.pipeline.decoding import Plan, TestSet, make_plan
from fairseq_plugins.pipeline.evaluate import parser
from fairseq_plugins.pipeline.generated import Texts, texts_of, write_perplexity
from fairseq_plugins.pipeline.results import read_run
from tests import toy
from tests.pipeline.making import write_run

TRANSLATION = {"_name": "translation", "source_lang": "de", "target_lang": "en"}


def save(path: Path, task: Any, updates: int = 70, **groups: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {"task": task, "model": {"_name": "transformer"}, **groups}
    torch.save({"cfg": config, "model": {"w": torch.zeros(1)}, "optimizer_history": [{"num_updates": updates}]}, path)


@pytest.fixture
def data(tmp_path):
    """The toy corpus in the layout of a preparation script: 60 test sentences."""
    toy.binarise(tmp_path / "data")
    (tmp_path / "data" / "raw").mkdir()
    (tmp_path / "data" / "raw" / "test.en").write_bytes((tmp_path / "data" / "text" / "test.en").read_bytes())
    describe(tmp_path / "data", tokeniser="none")
    return tmp_path / "data"


def describe(data: Path, **content: Any) -> None:
    """Write the ``text.json`` of a preparation."""
    (data / "text.json").write_text(json.dumps(content))


@pytest.fixture
def run(tmp_path):
    directory = write_run(tmp_path / "run")
    save(directory / "checkpoints" / "checkpoint_last.pt", TRANSLATION, generation={"beam": 4, "lenpen": 0.6})
    return directory


def plan(run: Path, data: Path, *arguments: str) -> Plan:
    return make_plan(parser().read([str(run), str(data), "--device", "cpu", *arguments]))


def test_beam_and_length_penalty_are_the_configuration_s(run, data):
    found = plan(run, data)
    assert (found.decoding.beam, found.decoding.length_penalty, found.updates) == ("4", "0.6", 70)
    assert found.decoding.flags == ("--beam", "4", "--lenpen", "0.6")
    assert found.decoding.settings == (("beam", "4"), ("lenpen", "0.6"), ("text", "none+none"))
    assert found.decoding.test_sets == (TestSet("test", "test", data / "raw" / "test.en"),)
    assert (found.decoding.source, found.decoding.target, found.on_cpu) == ("de", "en", True)
    assert found.run.finished is not None


def test_the_user_can_say_otherwise(run, data):
    found = plan(run, data, "--beam", "7", "--length-penalty", "1")
    assert found.decoding.flags == ("--beam", "7", "--lenpen", "1")


def test_the_whole_search_of_a_configuration_is_handed_on(run, data):
    generation = {"beam": 4, "lenpen": 0.6, "lenpen_form": "gnmt", "max_len_a": 1.0, "max_len_b": 50}
    save(run / "checkpoints" / "checkpoint_last.pt", TRANSLATION, generation=generation)
    found = plan(run, data)
    assert found.decoding.flags == (
        "--beam",
        "4",
        "--lenpen",
        "0.6",
        "--lenpen-form",
        "gnmt",
        "--max-len-a",
        "1.0",
        "--max-len-b",
        "50",
    )
    assert found.decoding.length_penalty == "0.6 (gnmt)"


def test_languages_that_a_training_did_not_name_are_those_of_the_data(run, data):
    save(run / "checkpoints" / "checkpoint_last.pt", {"_name": "translation"})
    assert plan(run, data).decoding.target == "en"


def how_it_is_made_plain(run: Path, data: Path, *arguments: str) -> tuple[str, str, bool]:
    text = plan(run, data, *arguments).decoding.text
    assert text is not None
    return text.subwords, text.tokeniser, text.lower_case


def test_subwords_tokens_and_case_are_what_the_preparation_says_and_nothing_is_guessed(run, data):
    # Traces of everything: of subwords, of tokens, of letters made small.
    for name in ("codes", "sentencepiece.model"):
        (data / name).write_text("")
    (data / "text" / "test.tok.en").write_text("1 2 3\n" * 60)
    (data / "raw" / "test.en").write_text("One\n" * 60)
    assert how_it_is_made_plain(run, data) == ("none", "none", False)
    describe(data, tokeniser="moses", subwords="sentencepiece", lower_case=True)
    assert how_it_is_made_plain(run, data) == ("sentencepiece", "moses", True)
    assert plan(run, data).decoding.settings[-1] == ("text", "sentencepiece+moses+lower-case")


def test_an_earlier_preparation_is_described_by_its_settings_where_these_leave_no_doubt(run, data):
    (data / "text.json").unlink()
    (data / "settings").write_text("TOKENISER=moses\nSUBWORDS=bpe\nLOWER_CASE=1\n")
    assert how_it_is_made_plain(run, data) == ("subword_nmt", "moses", True)
    # The text may have come in tokens and subwords, or in neither.
    (data / "settings").write_text("TOKENISER=none\nSUBWORDS=none\nLOWER_CASE=0\n")
    with pytest.raises(UserError) as caught:
        plan(run, data)
    assert caught.value.problems == (
        f"{data}: no text.json describes its text; set --remove-bpe and "
        "--tokenised: --remove-bpe subword_nmt, sentencepiece or none, --tokenised moses or none",
    )
    given = ("--remove-bpe=subword_nmt", "--tokenised=moses")
    assert how_it_is_made_plain(run, data, *given) == ("subword_nmt", "moses", False)


def test_what_the_user_says_of_the_text_must_not_contradict_its_preparation(run, data):
    assert how_it_is_made_plain(run, data, "--remove-bpe=none", "--tokenised=none") == ("none", "none", False)
    with pytest.raises(UserError, match=r"^--remove-bpe is subword_nmt, but .*data was prepared with none "):
        plan(run, data, "--remove-bpe=subword_nmt")
    with pytest.raises(UserError, match="^--lower-cased is True, but .* was prepared with False "):
        plan(run, data, "--lower-cased")


def test_a_damaged_description_is_named(run, data):
    describe(data, tokeniser="mose")
    with pytest.raises(UserError, match=r"text.json: unknown tokeniser 'mose' \(did you mean 'moses'\?\)"):
        plan(run, data)
    describe(data, tokenizer="moses")
    with pytest.raises(UserError, match=r"text.json: not written by .*: .*'tokenizer'"):
        plan(run, data)


def test_what_fairseq_preprocess_alone_has_made_needs_the_references_and_what_the_text_is_in(run, data, tmp_path):
    alone, place = data / "data-bin", tmp_path / "mine"
    given = ("--remove-bpe=none", "--tokenised=none")
    with pytest.raises(UserError, match=r"data-bin/raw/test.en: no such file; --references DIR names the directory"):
        plan(run, alone, *given)
    place.mkdir()
    (data / "raw" / "test.en").rename(place / "test.en")
    found = plan(run, alone, *given, f"--references={place}")
    assert found.decoding.test_sets == (TestSet("test", "test", place / "test.en"),)
    assert found.binarised == alone


def test_a_checkpoint_of_the_old_style_is_decoded_by_fairseq_s_defaults(run, data):
    old = {"args": Namespace(task="translation", source_lang="de", target_lang="en"), "model": {"w": torch.zeros(1)}}
    torch.save(old, run / "checkpoints" / "checkpoint_last.pt")
    found = plan(run, data)
    assert (found.kind, found.decoding.flags) == ("translation", ("--beam", "5", "--lenpen", "1"))


def test_speech_has_its_units_joined_by_the_task_alone(run, data):
    # fairseq keeps the settings of this task in a Namespace.
    save(run / "checkpoints" / "checkpoint_last.pt", Namespace(_name="speech_to_text", config_yaml="mine.yaml"))
    (data / "data-bin" / "test.tsv").write_text("id\taudio\n" + "1\tx.npy\n" * 60)
    found = plan(run, data)
    assert (found.kind, found.decoding.text, found.decoding.target) == ("speech", None, "en")
    assert found.decoding.flags[-2:] == ("--config-yaml", "mine.yaml")
    (data / "data-bin" / "test.tsv").write_text("id\taudio\n" + "1\tx.npy\n" * 59)
    with pytest.raises(UserError, match=r"raw/test.en: 60 lines, but test.tsv in data-bin has 59 sentences"):
        plan(run, data)


def test_every_named_test_set_is_decoded_under_its_split(data):
    (data / "test_sets").write_text("test\tnewstest2014\ntest1\tnewstest2015\n")
    both = [TestSet("test", "newstest2014"), TestSet("test1", "newstest2015")]
    assert decoding.test_sets(data, []) == both
    assert decoding.test_sets(data, ["newstest2015"]) == both[1:]
    assert decoding.test_sets(data, ["valid"]) == [TestSet("valid", "valid")]
    with pytest.raises(UserError, match=r"unknown test set 'newstest20144' \(did you mean 'newstest2014'\?\)"):
        decoding.test_sets(data, ["newstest20144"])
    (data / "test_sets").write_text("test newstest2014\n")
    with pytest.raises(UserError, match="test_sets: each line must be"):
        decoding.test_sets(data, [])


def test_a_language_model_is_evaluated_as_it_was_trained(run, data):
    task = {"_name": "language_modeling", "sample_break_mode": "none", "tokens_per_sample": 512, "add_bos_token": True}
    save(run / "checkpoints" / "checkpoint_last.pt", task, eval_lm={"context_window": 400})
    found = plan(run, data)
    assert found.kind == "language_model"
    assert found.decoding.flags == (
        "--sample-break-mode",
        "none",
        "--tokens-per-sample",
        "512",
        "--context-window",
        "400",
        "--add-bos-token",
    )
    assert ("context-window", "0") in plan(run, data, "--context-window", "0").decoding.settings


def test_references_of_another_test_set_are_refused(run, data):
    (data / "raw" / "test.en").write_text("one\n" * 59)
    with pytest.raises(UserError, match=r"raw/test.en: 59 lines, but test.de-en.en in data-bin has 60 sentences"):
        plan(run, data)


def test_what_is_missing_is_named(run, data, tmp_path):
    (data / "raw" / "test.en").unlink()
    with pytest.raises(UserError, match=r"raw/test.en: no such file"):
        plan(run, data)
    with pytest.raises(UserError, match="neither data-bin/ nor a dictionary"):
        plan(run, run)
    with pytest.raises(UserError, match="nowhere: no such directory"):
        plan(run, tmp_path / "nowhere")
    (run / "checkpoints" / "checkpoint_last.pt").unlink()
    with pytest.raises(UserError, match="checkpoints: contains no checkpoint"):
        plan(run, data)


def test_a_task_that_is_not_known_is_named(run, data):
    save(run / "checkpoints" / "checkpoint_last.pt", {"_name": "masked_lm"})
    with pytest.raises(UserError, match="task 'masked_lm' is not supported; supported tasks: translation, "):
        plan(run, data)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--beam", "0", "--beam 0: not a whole number of at least 1"),
        ("--beam", "x", "--beam x: not a whole number of at least 1"),
        ("--length-penalty", "long", "--length-penalty long: not a number"),
        ("--length-penalty", "nan", "--length-penalty nan: not a finite number"),
        ("--length-penalty", "-inf", "--length-penalty -inf: not a finite number"),
        ("--context-window", "-1", "--context-window -1: not a whole number of at least 0"),
        ("--metrics", "sacrebleu,blue", "unknown metric 'blue'; legal values: chrf, chrf++, "),
        ("--average", "last-epoch=10", "unknown --average 'last-epoch=10'; legal values: last-epochs=N"),
    ],
)
def test_a_wrong_setting_is_one_line(run, data, flag, value, message):
    with pytest.raises(UserError) as caught:
        plan(run, data, f"{flag}={value}")
    assert caught.value.problems[0].startswith(message)


def test_what_was_misspelt_is_told_before_fairseq_is_loaded(run, data, capsys, monkeypatch):
    def loaded() -> None:
        raise AssertionError("fairseq was loaded")

    monkeypatch.setattr(decoding.fairseq_plugins, "register", loaded)
    assert evaluate.main([str(run), str(data), "tset"]) == 2
    line = f"error: {data}: unknown test set 'tset' (did you mean 'test'?); legal values: test, valid\n"
    assert capsys.readouterr() == ("", line)


def trained_on(run: Path, data: Path, fingerprint: str) -> None:
    """Write a ``run.json`` that says that ``run`` was trained on ``data``."""
    record = json.loads((run / "run.json").read_text())
    configuration = {
        "task": TRANSLATION,
        "model": {},
        "dataset": {"disable_validation": False, "valid_subset": "valid"},
    }
    record |= {"configuration": configuration, "data": str(data / "data-bin"), "data_fingerprint": fingerprint}
    (run / "run.json").write_text(json.dumps(record))


def test_data_of_another_training_are_refused(run, data, tmp_path):
    binarised = data / "data-bin"
    training = [binarised / f"train.de-en.{side}.bin" for side in ("de", "en")]
    sizes = [f"{path.name} {path.stat().st_size}\n" for path in training]
    content = b"".join((binarised / f"dict.{side}.txt").read_bytes() for side in ("de", "en"))
    trained_on(run, data, hashlib.sha256(content + "".join(sizes).encode()).hexdigest())
    moved = data.rename(tmp_path / "moved")
    assert plan(run, moved).decoding.test_sets == (TestSet("test", "test", moved / "raw" / "test.en"),)

    dictionary = moved / "data-bin" / "dict.en.txt"
    first, second, *others = dictionary.read_text().splitlines(keepends=True)
    dictionary.write_text("".join([second, first, *others]))
    with pytest.raises(UserError) as caught:
        plan(run, moved)
    assert caught.value.problems == (
        f"{moved}: not the data of {run}, which was trained on {data}: dictionaries or training files differ",
    )


def test_the_published_row_says_what_is_averaged(tmp_path):
    run = read_run(write_run(tmp_path / "run", config="iwslt14_de_en/admin_6e6d"))
    assert averaging.choose(run, "") == "last-epochs=10"
    assert averaging.choose(run, "last-updates=3") == "last-updates=3"
    assert averaging.choose(run, "none") == "none"


def test_without_a_published_row_the_last_that_are_there_are_averaged(tmp_path):
    run = read_run(write_run(tmp_path / "run", config="mine/own"))
    assert averaging.choose(run, "") == "none"
    run.checkpoints.mkdir()
    for epoch in range(1, 4):
        (run.checkpoints / f"checkpoint{epoch}.pt").touch()
    assert averaging.choose(run, "") == "last-epochs=3"
    for update in range(10, 80, 10):
        (run.checkpoints / f"checkpoint_1_{update}.pt").touch()
    assert averaging.choose(run, "") == "last-updates=5"
    assert averaging.newest(run.checkpoints).name == "checkpoint_1_70.pt"


def test_the_checkpoints_of_an_average(tmp_path):
    for update in range(10, 40, 10):
        (tmp_path / f"checkpoint_1_{update}.pt").touch()
    last = [tmp_path / f"checkpoint_1_{update}.pt" for update in (20, 30)]
    assert averaging.inputs("last-updates=2", tmp_path) == last
    assert averaging.inputs("none", tmp_path) == [tmp_path / "checkpoint_last.pt"]
    assert averaging.inputs("a.pt", tmp_path) == [Path("a.pt")]
    with pytest.raises(UserError, match="only 0 checkpoints saved by epoch, fewer than the 1 requested"):
        averaging.inputs("last-epochs=1", tmp_path)


# --- texts ----------------------------------------------------------------------------------------------------------

plain = st.text(st.characters(exclude_characters="\t\n\r", codec="utf-8"))


def generated(index: int, reference: str, translation: str) -> list[str]:
    return [
        f"S-{index}\tein Haus\n",
        f"T-{index}\t{reference}\n",
        f"H-{index}\t-0.5\tnot this\n",
        f"D-{index}\t-0.5\t{translation}\n",
        f"P-{index}\t-0.5 -0.5\n",
    ]


def read(place: Path, lines: list[str], raw: list[str]) -> Texts:
    (place / "generate.log").write_text("".join(lines), encoding="utf-8", newline="\n")
    (place / "raw.en").write_text("".join(f"{line}\n" for line in raw), encoding="utf-8", newline="\n")
    return texts_of(place / "generate.log", place / "raw.en", place / "test.tok.en")


@settings(max_examples=40)
@given(pairs=st.lists(st.tuples(plain, plain), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_translations_and_references_stand_in_the_order_of_the_test_set(tmp_path_factory, pairs, seed):
    place = tmp_path_factory.mktemp("texts")
    order = list(range(len(pairs)))
    random.Random(seed).shuffle(order)
    raw = [f"{number}. as published" for number in range(len(pairs))]
    first = "2026 | INFO | fairseq_cli.generate | D-ictionary\n"
    texts = read(place, [first, *(line for index in order for line in generated(index, *pairs[index]))], raw)
    assert texts == ([translation for _, translation in pairs], raw, [reference for reference, _ in pairs])


def test_tokenised_references_are_those_from_before_the_subwords(tmp_path):
    (tmp_path / "test.tok.en").write_text("a rare word\n")
    texts = read(tmp_path, generated(0, "a <<unk>> word", "a word"), ["A rare word"])
    assert texts.tokenised_references == ["a rare word"]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 2], "2 translations for 3 test sentences; the first missing is 1"),
        ([2, 1, 0, 3], "4 translations for 3 test sentences"),
        ([], "0 translations for 3 test sentences; the first missing is 0"),
        ([0, 1, 1, 2], "sentence 1 was translated twice"),
    ],
)
def test_a_lost_sentence_stops_the_evaluation(tmp_path, indices, message):
    lines = [line for index in indices for line in generated(index, "x", "x")]
    with pytest.raises(UserError) as caught:
        read(tmp_path, lines, ["x", "x", "x"])
    assert str(caught.value) == f"{tmp_path / 'generate.log'}: {message}"


def test_tokenised_references_of_another_length_are_refused(tmp_path):
    (tmp_path / "test.tok.en").write_text("one\ntwo\n")
    with pytest.raises(UserError, match=r"test\.tok\.en: 2 lines, but"):
        read(tmp_path, generated(0, "x", "x"), ["x"])


# --- language models ------------------------------------------------------------------------------------------------


def test_bits_per_byte_are_of_the_text_and_not_of_the_tokens(tmp_path):
    (tmp_path / "eval-lm.log").write_text(
        "2026 | INFO | fairseq_cli.eval_lm | Evaluated 1,000 tokens in 2.0s (500.00 tokens/s)\n"
        "2026 | INFO | fairseq_cli.eval_lm | Loss (base 2): 3.0000, Perplexity: 8.00\n"
    )
    (tmp_path / "test").write_bytes(b"x" * 2000)
    write_perplexity(tmp_path / "eval-lm.log", tmp_path / "test", tmp_path / "score.json")
    content = json.loads((tmp_path / "score.json").read_text())
    # 1000 tokens of 3 bits are 3000 bits on 2000 bytes.
    values = {metric["name"]: metric["value"] for metric in content["metrics"]}
    assert values == {"perplexity": 8.0, "bits per token": 3.0, "bits per byte": 1.5}


def test_a_language_model_without_a_result_is_one_line(tmp_path):
    log = tmp_path / "eval-lm.log"
    log.write_text("nothing\n")
    with pytest.raises(UserError) as caught:
        write_perplexity(log, tmp_path / "test", tmp_path / "score.json")
    assert str(caught.value) == f"{log}: fairseq-deep eval-lm printed no loss"
