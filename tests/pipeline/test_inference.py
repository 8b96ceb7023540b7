"""evaluate computes with a model the same lines and digits that fairseq's own commands print."""

import re
from pathlib import Path

import pytest

from fairseq_plugins.process import users_mistake
from fairseq_plugins.tools.pipeline import inference
from fairseq_plugins.tools.pipeline.corpus import TestSet
from fairseq_plugins.tools.pipeline.decoding import LANGUAGE_MODEL, SPEECH, TRANSLATION, DecodePlan
from fairseq_plugins.tools.text.description import Description
from tests import texts, toy
from tests.language_model import text
from tests.pipeline.making import plan_of
from tests.refusals import refused
from tests.speech_to_text import audio

TEST = TestSet("test", "test")


def ours(plan: DecodePlan, checkpoint: Path) -> list[str]:
    translated = inference.translate(plan, TEST, checkpoint)
    assert [line.number for line in translated] == list(range(len(translated)))
    return sorted(row for line in translated for row in line.lines())


def stock(results: Path) -> list[str]:
    """The lines of sentences that ``fairseq-generate`` wrote."""
    lines = (results / "generate-test.txt").read_text(encoding="utf-8").split("\n")
    return sorted(line for line in lines if re.match("[STHDP]-", line))


@pytest.fixture(scope="module")
def in_subwords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy corpus with every other digit of a target cut off its successor, and a rare word."""
    place = tmp_path_factory.mktemp("subwords")
    toy.write_corpus(place / "text")
    for path in (place / "text").glob("*.en"):
        lines = [re.sub(r"(\d) (\d)", r"\1@@ \2", line) for line in texts.read(path)]
        texts.write(path, [*lines[:-1], f"{path.stem} {lines[-1]}"])
    return toy.binarise_text(place, tuple(toy.SIZES))


def test_translations_and_their_scores_are_those_of_fairseq_generate_and_none_is_lost(
    in_subwords: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = toy.train_toy(in_subwords, tmp_path / "run", "--max-epoch", "6", "--lr", "0.01")
    seen = set()
    for number, search in enumerate(
        (
            {"beam": 1, "lenpen": 1.0, "max_len_b": 12},
            {"beam": 4, "lenpen": 0.3, "max_len_a": 1.2, "max_len_b": 5, "min_len": 3, "no_repeat_ngram_size": 2},
            {"beam": 3, "lenpen": 1.5, "max_len_b": 9, "lenpen_form": "gnmt"},
        )
    ):
        flags = [word for name, value in search.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        most = 90 + 200 * number
        flags += ["--max-tokens", str(most), "--remove-bpe=subword_nmt"]
        toy.translate_toy(in_subwords, checkpoint, tmp_path, *flags)
        languages = {"source_lang": "de", "target_lang": "en"}
        plan = plan_of(TRANSLATION, in_subwords, task_settings=languages, search=search, max_tokens=most)
        lines = ours(DecodePlan(**{**vars(plan), "text": Description("none", "subword_nmt")}), checkpoint)
        assert len(lines) == 5 * toy.SIZES["test"]
        assert lines == stock(tmp_path)
        seen |= {line for line in lines if line.startswith("D-")}
    with monkeypatch.context() as patch:
        for change, count in ((lambda samples: samples[1:], r"\d+"), (lambda samples: samples * 2, "120")):
            patch.setattr(inference, "_with_progress", lambda samples, change=change: change(list(samples)))
            found = refused(inference.translate, plan, TEST, checkpoint)
            assert re.fullmatch(rf".*: test: {count} translations of \d+ sentences, but it has 60", found)
    short = {**vars(plan), "task_settings": {**languages, "max_source_positions": 5}}
    with pytest.raises(Exception, match="invalid") as error:
        inference.translate(DecodePlan(**short), TEST, checkpoint)
    assert re.match(r"sentence \d+ has \d+ and \d+ tokens with the end mark", str(users_mistake(error.value)))
    assert any("<<unk>>" in line for line in lines)
    assert len(seen) > 2 * toy.SIZES["test"]


def test_transcriptions_are_those_of_fairseq_generate(speech_data: Path, tmp_path: Path) -> None:
    checkpoint = audio.train(speech_data, tmp_path / "run", "s2t_transformer", "--max-update", "3")
    flags = ("--task", "speech_to_text", "--beam", "3", "--max-tokens", "800", "--lenpen", "0.5")
    toy.translate_toy(speech_data, checkpoint, tmp_path, *flags)
    search = {"beam": 3, "lenpen": 0.5, "max_len_b": 12}
    lines = ours(plan_of(SPEECH, speech_data, search=search, max_tokens=800), checkpoint)
    assert len(lines) == 4 * audio.SIZES["test"]
    assert lines == stock(tmp_path)


@pytest.mark.parametrize("flags", [(), ("--add-bos-token",), ("--context-window", "7")])
def test_the_perplexity_is_that_of_fairseq_eval_lm(flags: tuple[str, ...], characters: Path, tmp_path: Path) -> None:
    checkpoint = text.train(characters, tmp_path, "transformer_lm", "--max-update", "3")
    samples = ("--sample-break-mode", "none", "--tokens-per-sample", "20")
    expected = text.evaluate(characters, checkpoint, *samples, *flags)
    window = int(flags[1]) if len(flags) > 1 else 0
    settings = {"sample_break_mode": "none", "tokens_per_sample": 20 - window}
    settings |= {"add_bos_token": "--add-bos-token" in flags}
    plan = plan_of(LANGUAGE_MODEL, characters, task_settings=settings, context_window=window)
    bits, tokens = inference.perplexity(plan, TEST, checkpoint)
    assert bits == pytest.approx(float(expected["loss"]), rel=1e-6)
    with open(characters.parent / "text" / "test.chars") as lines:
        assert tokens == sum(len(line.split()) + 1 for line in lines)
