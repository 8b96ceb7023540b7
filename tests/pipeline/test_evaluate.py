"""Decoding a run and writing its translations: settings, counts, order, nothing lost."""

import json
import math
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins import integrity
from fairseq_plugins.checkpoints import average as averaging
from fairseq_plugins.checkpoints import names
from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.decoder import Hypothesis
from fairseq_plugins.tools.pipeline import corpus, evaluate, inference
from fairseq_plugins.tools.pipeline.corpus import TestSet
from fairseq_plugins.tools.pipeline.decoding import DecodePlan
from fairseq_plugins.tools.pipeline.evaluate import make_plan, parser
from fairseq_plugins.tools.pipeline.inference import Translated
from fairseq_plugins.tools.pipeline.published import published_average, published_rows
from fairseq_plugins.tools.pipeline.results import read_run
from fairseq_plugins.tools.text.description import Description
from tests import toy
from tests.pipeline.making import plan_of, write_run
from tests.refusals import refused
from tests.texts import write

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
    directory = write_run(tmp_path / "run", config="mine/own")
    save(directory / "checkpoints" / "checkpoint_last.pt", TRANSLATION, generation={"beam": 4, "lenpen": 0.6})
    return directory


def plan(run: Path, data: Path, *arguments: str) -> DecodePlan:
    return make_plan(parser().read([str(run), str(data), "--device", "cpu", *arguments]))


def refusal(run: Path, data: Path, *arguments: str) -> str:
    return refused(plan, run, data, *arguments)


def test_the_search_is_the_configuration_s_unless_the_user_says_otherwise(run, data):
    last = run / "checkpoints" / "checkpoint_last.pt"
    ours = plan(run, data)
    assert (ours.search, ours.length_penalty, ours.updates) == ({"beam": 4, "lenpen": 0.6}, "0.6", 70)
    assert ours.task_settings == {"source_lang": "de", "target_lang": "en"}
    assert ours.settings == (("beam", "4"), ("lenpen", "0.6"), ("text", "none+none"))
    assert ours.test_sets == (TestSet("test", "test", data / "raw" / "test.en"),)
    assert (ours.max_tokens, ours.on_gpu) == (4000, False)
    assert (ours.average, ours.checkpoints) == ("none", (last,))
    # Checkpoints may be deleted once they are averaged.
    (run / "averaged.pt").touch()
    assert plan(run, data, "--average=last-epochs=4").checkpoints == ()
    assert ours.finished
    earlier = run / "checkpoints" / "checkpoint1.pt"
    save(earlier, TRANSLATION, updates=20)
    assert plan(run, data, f"--average={earlier}").updates == 20
    save(earlier, TRANSLATION, common={"seed": 2222})
    said = f"{earlier}: of another training than {run}: common.seed is 2222, not 1111"
    assert refusal(run, data, f"--average={earlier}") == said
    asked = plan(run, data, "--beam", "7", "--length-penalty", "1")
    assert asked.settings[:2] == (("beam", "7"), ("lenpen", "1"))
    generation = {"beam": 4, "lenpen": 0.6, "lenpen_form": "gnmt", "max_len_a": 1.0, "max_len_b": 50, "unkpen": 2}
    save(last, {"_name": "translation"}, generation={**generation, "temperature": 1.0})
    whole = plan(run, data)
    assert whole.search == generation
    settings = (("lenpen-form", "gnmt"), ("max-len-a", "1.0"), ("max-len-b", "50"), ("unkpen", "2"))
    assert whole.settings == (*ours.settings[:2], *settings, ours.settings[2])
    assert whole.length_penalty == "0.6 (gnmt)"
    # A checkpoint of the old style is decoded by fairseq's defaults.
    old = {"args": Namespace(task="translation", source_lang="de", target_lang="en"), "model": {"w": torch.zeros(1)}}
    torch.save(old, last)
    assert plan(run, data).search == {"beam": 5, "lenpen": 1.0}


def test_subwords_tokens_and_case_are_what_the_preparation_says_and_nothing_is_guessed(run, data):
    # Traces of everything: of subwords, of tokens, of letters made small.
    for name in ("codes", "sentencepiece.model"):
        (data / name).write_text("")
    (data / "text" / "test.tok.en").write_text("1 2 3\n" * 60)
    (data / "raw" / "test.en").write_text("One\n" * 60)
    assert plan(run, data).settings[-1] == ("text", "none+none")
    describe(data, tokeniser="moses", subwords="sentencepiece", lower_case=True)
    assert plan(run, data).settings[-1] == ("text", "sentencepiece+moses+lower-case")
    describe(data, tokeniser="mose")
    assert "text.json: unknown tokeniser 'mose' (did you mean 'moses'?)" in refusal(run, data)
    describe(data, tokenizer="moses")
    assert re.search("text.json: not written by .*: .*'tokenizer'", refusal(run, data))


def test_what_fairseq_preprocess_alone_has_made_needs_the_references_and_what_the_text_is_in(run, data, tmp_path):
    alone, place = data / "data-bin", tmp_path / "mine"
    meant = f"(did you mean '{data.resolve()}', which has one?)"
    assert refusal(run, alone) == f"{alone}: no text.json describes its text {meant}"
    (data / "text.json").unlink()
    assert refusal(run, alone) == (
        f"{alone}: no text.json describes its text; write it: python -m fairseq_plugins.tools.text describe "
        f"--tokeniser moses|none|bytes --subwords subword_nmt|sentencepiece|none {alone}/text.json"
    )
    describe(alone, tokeniser="none")
    absent = "data-bin/raw/test.en: no such file; --references DIR names the directory of the published references"
    assert refusal(run, alone).endswith(absent)
    place.mkdir()
    (data / "raw" / "test.en").rename(place / "test.en")
    ours = plan(run, alone, f"--references={place}")
    assert ours.test_sets == (TestSet("test", "test", place / "test.en"),)
    assert ours.binarised == alone


def test_speech_has_its_units_joined_by_the_task_alone(run, data):
    # fairseq keeps the settings of this task in a Namespace.
    save(run / "checkpoints" / "checkpoint_last.pt", Namespace(_name="speech_to_text", config_yaml="mine.yaml"))
    ours = plan(run, data)
    assert (ours.text, ours.target, ours.metrics, ours.max_tokens) == (None, "en", ("wer",), 50000)
    assert ours.task_settings == {"config_yaml": "mine.yaml"}


def test_every_named_test_set_is_decoded_under_its_split(data):
    (data / "test_sets").write_text("test\tnewstest2014\ntest1\tnewstest2015\n")
    both = [TestSet("test", "newstest2014"), TestSet("test1", "newstest2015")]
    assert corpus.test_sets(data, []) == both
    assert corpus.test_sets(data, ["newstest2015"]) == both[1:]
    misspelt = refused(corpus.test_sets, data, ["newstest20144"])
    assert "unknown test set 'newstest20144' (did you mean 'newstest2014'?)" in misspelt
    for line in ("test newstest2014", "test\t../../raw/test", "test\t/tmp/x", "../x\ttest", "test\t..", "test\t\x1b"):
        (data / "test_sets").write_text(f"{line}\n")
        assert "test_sets: each line must be" in refused(corpus.test_sets, data, []), line
    (data / "test_sets").write_text("")
    assert corpus.sets_to_evaluate(data, ["valid"]) == [TestSet("valid", "valid")]
    told = f"{data}: prepared without a test set; only valid can be evaluated, if it is named"
    assert refused(corpus.sets_to_evaluate, data) == told


def test_a_language_model_is_evaluated_as_it_was_trained(run, data):
    task = {"_name": "language_modeling", "sample_break_mode": "none", "tokens_per_sample": 512, "add_bos_token": True}
    save(run / "checkpoints" / "checkpoint_last.pt", task, eval_lm={"context_window": 400})
    ours = plan(run, data)
    samples = {"sample_break_mode": "none", "tokens_per_sample": 112, "add_bos_token": True}
    assert (ours.task_settings, ours.context_window, ours.search) == (samples, 400, {})
    recorded = (("sample-break-mode", "none"), ("tokens-per-sample", "512"), ("context-window", "400"))
    assert ours.settings == recorded
    assert ours.binarised == data / "data-bin"
    for option in ("beam", "length-penalty", "metrics"):
        given = f"--{option}={'chrf' if option == 'metrics' else 1}"
        assert refusal(run, data, given) == f"--{option} has no effect: a language model is scored by its perplexity"
    save(run / "checkpoints" / "checkpoint_last.pt", task, eval_lm={"context_window": 512})
    assert refusal(run, data) == "eval_lm.context_window must be below task.tokens_per_sample, not 512"


def test_what_is_missing_or_unknown_is_one_line(run, data, tmp_path):
    last = run / "checkpoints" / "checkpoint_last.pt"
    raw = data / "raw" / "test.en"
    raw.unlink()
    assert refusal(run, data).startswith(f"{raw}: no such file")
    (tmp_path / "empty").mkdir()
    assert "no text.json describes its text" in refusal(run, tmp_path / "empty")
    assert refusal(run, tmp_path / "nowhere").endswith("nowhere: no such directory")
    fewer = "only 0 checkpoints saved by epoch, not the 4 requested"
    assert fewer in refusal(run, data, "--average=last-epochs=4")
    save(last, {"_name": "masked_lm"})
    assert "task 'masked_lm' is not supported; supported tasks: translation, " in refusal(run, data)
    last.unlink()
    assert refusal(run, data).endswith("checkpoints: contains no checkpoint")


def test_what_was_misspelt_is_told_before_fairseq_is_loaded(run, data, capsys, monkeypatch):
    def loaded() -> None:
        raise AssertionError("fairseq was loaded")

    monkeypatch.setattr(integrity, "import_fairseq", loaded)
    assert main(["evaluate", str(run), str(data), "tset"]) == 2
    line = f"error: {data}: unknown test set 'tset' (did you mean 'test'?); legal values: test, valid\n"
    assert capsys.readouterr() == ("", line)
    with pytest.raises(AssertionError, match="fairseq was loaded"):
        main(["evaluate", str(run), str(data), "test"])


def test_the_published_row_says_what_is_averaged_else_the_last_that_are_there(tmp_path):
    for config, average in (("iwslt14_de_en/admin_6e6d", "last-epochs=10"), ("mine/own", "")):
        run = read_run(write_run(tmp_path / config, config=config))
        assert published_average(published_rows(run)) == average
    assert names.usual_average(run.checkpoints) == "none"
    run.checkpoints.mkdir()
    for epoch in range(1, 4):
        (run.checkpoints / f"checkpoint{epoch}.pt").touch()
    assert names.usual_average(run.checkpoints) == "last-epochs=3"
    assert names.newest(run.checkpoints).name == "checkpoint3.pt"
    updates = [run.checkpoints / f"checkpoint_1_{update}.pt" for update in range(10, 80, 10)]
    for path in updates:
        path.touch()
    assert names.usual_average(run.checkpoints) == "last-updates=5"
    for of_epoch, latest in ((60, updates[-1]), (80, run.checkpoints / "checkpoint3.pt")):
        for path, number in ((run.checkpoints / "checkpoint3.pt", of_epoch), (updates[-1], 70)):
            torch.save({"optimizer_history": [{"num_updates": number}]}, path)
        assert names.newest(run.checkpoints) == latest
    assert names.checkpoints_of("last-updates=2", run.checkpoints) == updates[-2:]
    assert names.checkpoints_of("none", run.checkpoints) == [run.checkpoints / "checkpoint_last.pt"]
    assert names.checkpoints_of("a.pt", run.checkpoints) == [Path("a.pt")]
    too_few = refused(names.checkpoints_of, "last-epochs=4", run.checkpoints)
    assert "only 3 checkpoints saved by epoch, not the 4 requested" in too_few


# --- texts ----------------------------------------------------------------------------------------------------------

PLAIN = ("", " ", "a word", "D-1", "\x85 a line for some", "\u2028 or another", "\x0c", "\ufeffß", "x\x00y", "😀")


def translated(number: int, reference: str, translation: str) -> Translated:
    hypothesis = Hypothesis(["not", "this"], -1.0, [-0.5, -0.25, -0.25])
    return Translated(number, "ein Haus", reference, hypothesis, translation, translation)


def written(place: Path, patch: pytest.MonkeyPatch, lines: list[Translated], *cut: str) -> list[list[str]]:
    """The files made of translations: their text, and the references in tokens."""
    tokens = write(place / "test.tok.en", cut) if cut else None
    plan, test_set = plan_of("translation", place), TestSet("test", "test", tokenised=tokens)
    patch.setattr(inference, "translate", lambda plan, test_set, model: lines)
    inference.write_translations(plan, test_set, place / "averaged.pt", place / "hypotheses.tok")
    return [inference._read(place / name) for name in ("hypotheses.tok", "references.tok")]


def test_translations_and_references_stand_in_the_order_of_the_test_set(tmp_path, monkeypatch):
    pairs = list(zip(PLAIN, reversed(PLAIN), strict=True))
    lines = [translated(number, *pair) for number, pair in enumerate(pairs)]
    expected = [[translation for _, translation in pairs], [reference for reference, _ in pairs]]
    assert written(tmp_path, monkeypatch, lines) == expected
    # The references before the subwords have the unknown words.
    tokens = [f"a rare word {number}" for number in range(len(pairs))]
    assert written(tmp_path, monkeypatch, lines, *tokens) == [expected[0], tokens]
    log = (tmp_path / "generate.log").read_text(encoding="utf-8").split("\n")
    assert log[10:15] == [
        *("S-2\tein Haus", "T-2\ta word", "H-2\t-1.4426950216293335\t\ufeffß", "D-2\t-1.4426950216293335\t\ufeffß"),
        "P-2\t-0.7213 -0.3607 -0.3607",
    ]


# --- language models ------------------------------------------------------------------------------------------------


def test_bits_per_byte_are_of_the_text_and_not_of_the_tokens(tmp_path, monkeypatch):
    text, scores = tmp_path / "test", tmp_path / "score.json"
    text.write_bytes(b"x" * 2000)
    plan = DecodePlan("language_modeling", tmp_path, tmp_path, ())

    def values(bits: float) -> dict[str, float]:
        monkeypatch.setattr(inference, "perplexity", lambda plan, test_set, model: (bits, 1000))
        inference.write_perplexity(plan, TestSet("test", "test", text), tmp_path / "averaged.pt", scores)
        return {metric["name"]: metric["value"] for metric in json.loads(scores.read_text())["metrics"]}

    # 1000 tokens of 3 bits are 3000 bits on 2000 bytes.
    assert values(3.0) == {"perplexity": 8.0, "bits per token": 3.0, "bits per byte": 1.5}
    assert values(1100.0)["perplexity"] == math.inf  # it has diverged


def test_scores_of_another_run_or_against_other_references_are_not_kept(tmp_path, monkeypatch, capsys):
    for number, name in enumerate(("first", "second")):
        write_run(tmp_path / name, seed=number)
    for name, text in (("data/raw", "the cat sat on the mat"), ("others", "a dog ran to the old house")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "test.en").write_text(f"{text}\n")

    contents: dict[str, str] = {}

    def made_plan(args):
        published = (args.references or args.data / "raw") / "test.en"
        test_sets = tuple(TestSet(name, name, published) for name in args.test_sets or ["test"])
        how = {"metrics": ("sacrebleu",), "search": {"beam": 5, "lenpen": 1.0}, "contents": contents}
        return DecodePlan("translation", args.data, args.data, test_sets, **how)

    def as_published(plan, test_set, model):
        return [translated(0, "", test_set.published.read_text().rstrip())]

    monkeypatch.setattr(evaluate, "make_plan", made_plan)
    monkeypatch.setattr(inference, "translate", as_published)
    monkeypatch.setattr(averaging, "average_checkpoints", lambda inputs, target: [target.write_text("weights")])
    monkeypatch.setattr(evaluate, "write_check", lambda _, __, target, accepted: target.write_text('{"accepted": ""}'))
    out = ["--output", str(tmp_path / "out")]

    def evaluated(name, *options):
        evaluate.evaluate(evaluate.parser().read([str(tmp_path / name), str(tmp_path / "data"), *out, *options]))

    mine = tmp_path / "out" / "averaged.pt"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert refused(evaluated, "first") == f"{mine}: exists, but not from an evaluation; move or delete it"
    assert mine.read_text() == "mine"
    mine.unlink()
    evaluated("first")
    assert "100.00" in capsys.readouterr().out
    other = f"{tmp_path / 'out'} was made with other settings (run={tmp_path / 'second'}; was run={tmp_path / 'first'})"
    assert refused(evaluated, "second").startswith(other)
    # All directories are compared before the first test set is translated.
    changed = refused(evaluated, "first", "new", "test", "--metrics=chrf")
    assert changed.startswith(f"{tmp_path}/out/test was made with other settings")
    assert not (tmp_path / "out" / "new" / "hypotheses.tok").exists()
    contents["test"] = "other text"
    assert "/out/test was made with other settings (content=other text; was content=)" in refused(evaluated, "first")
    contents.clear()
    line = f"{tmp_path}/out/test: scored against other references than {tmp_path}/others/test.en; delete it"
    assert refused(evaluated, "first", f"--references={tmp_path / 'others'}") == line
    evaluated("first")


def test_a_language_with_a_hyphen_is_scored(tmp_path):
    plan = plan_of("translation", tmp_path, source="en", target="pt-BR", text=Description("moses"))
    for name in ("hypotheses.tok", "references.tok"):
        (tmp_path / name).write_text("Uma casa .\n")
    inference.write_scores(plan, ["Uma casa."], tmp_path / "score.json")
    assert json.loads((tmp_path / "score.json").read_text())["language_pair"] == "en-pt_BR"


def test_an_average_over_much_of_the_training_is_warned_of(tmp_path, monkeypatch, capsys):
    paths = [tmp_path / f"checkpoint_1_{updates}.pt" for updates in (100, 320, 400)]
    for path, updates in zip(paths, (100, 320, 400), strict=True):
        save(path, TRANSLATION, updates)
    wide = "warning: the average spans updates 100 to 400 of 400, which may cost BLEU; average fewer checkpoints, or "
    for count, line in ((3, f"{wide}none\n"), (2, ""), (1, "")):
        plan = DecodePlan("translation", tmp_path, tmp_path, (), checkpoints=tuple(paths[-count:]), updates=400)
        monkeypatch.setattr(evaluate, "make_plan", lambda args, plan=plan: plan)
        evaluate.evaluate(parser().read([str(tmp_path), str(tmp_path)]))
        warning = tmp_path / "evaluation" / "average.warning"
        assert capsys.readouterr().err == line
        assert (warning.read_text() if warning.exists() else "") == line[9:].partition(";")[0] + "\n" * bool(line)
        (tmp_path / "averaged.pt").unlink()
