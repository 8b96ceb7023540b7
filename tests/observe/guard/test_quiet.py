"""A training in which nothing is wrong: not a word, not a bit changed; and one that learns nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.data.audio.speech_to_text_dataset import SpeechToTextDataset
from fairseq.tasks.translation import TranslationTask

from fairseq_plugins.core.method import Axis
from fairseq_plugins.errors import Diverged
from fairseq_plugins.tools.observe.guard import plateau
from fairseq_plugins.tools.observe.guard.guarding import Guard
from fairseq_plugins.tools.observe.guard.plateau import PlateauWatch, target_entropy
from fairseq_plugins.tools.observe.guard.signals import Update
from fairseq_plugins.tools.observe.recorder import read
from fairseq_plugins.tools.pipeline.verdicts import unigram_entropy
from tests import toy
from tests.faults.exact import differences
from tests.observe.guard.conftest import Said, Training
from tests.observe.recording import FEW, ON
from tests.representatives import for_each
from tests.speech_to_text import audio

STOP = ("--divergence-action", "stop")


def test_the_training_is_bit_for_bit_that_without_it(training: Training, said: Said) -> None:
    def train(name: str, *more: str) -> Path:
        flags = (*FEW, "12", "--update-freq", "2", *more)
        return toy.train_toy(training.data, training.directory / name, *flags, arch="admin_transformer")

    base = toy.losses_of(TranslationTask, lambda: train("base"))
    guarded = toy.losses_of(TranslationTask, lambda: train("guarded", *ON, "--divergence-action", "skip"))
    assert base[0] == guarded[0]
    assert differences(base[1]["model"], guarded[1]["model"]) == []
    assert said() == []


@for_each("method", ["admin", "b2t", "pre_ln", "rezero", "ds_init", "deepnet"], Axis.NORM_POSITION)
def test_methods_are_quiet(training: Training, said: Said, method: str) -> None:
    run = training.run("run", *STOP, "--diagnostics-interval", "50", arch=f"{method}_transformer", updates=36)
    assert said() == []
    assert not (run / "divergence").exists()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Update]:
    """The guard's view of each update."""
    seen: list[Update] = []
    update = Guard._seen

    def watch(guard: Guard, *given: Any) -> Update:
        seen.append(update(guard, *given))
        return seen[-1]

    monkeypatch.setattr(Guard, "_seen", watch)
    return seen


def test_the_loss_is_that_of_a_token_also_under_sentence_avg(training: Training, seen: list[Update]) -> None:
    for flags in ((), ("--sentence-avg",)):
        training.run("run" + "".join(flags), *STOP, *flags, updates=1)
    assert seen[1].loss == pytest.approx(seen[0].nll, rel=1e-5)


def test_r_drop_has_the_loss_of_a_token_and_not_of_two(training: Training, seen: list[Update]) -> None:
    """It computes every sentence twice: without dropout nothing else changes in the first update."""
    criterion = ("--criterion", "label_smoothed_cross_entropy_with_rdrop_with_diagnostics", "--label-smoothing", "0.1")
    for alpha in ("0", "5"):
        flags = (*criterion, "--rdrop-alpha", alpha, *STOP, "--dropout", "0", "--max-update", "1", "--no-save")
        toy.train_toy(training.data, training.directory / alpha, *flags, arch="pre_ln_transformer")
    assert seen[1].nll == pytest.approx(seen[0].nll, rel=1e-5)


def test_the_entropy_is_that_of_the_text(toy_data: Path, training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks.setup_task(toy.parse_training(toy_data, training.directory).task)
    task.load_dataset("train")
    state = torch.random.get_rng_state()
    lines = (toy_data.parent / "text" / "train.en").read_text(encoding="utf-8").splitlines()
    assert target_entropy(task, "train") == pytest.approx(unigram_entropy(lines))
    monkeypatch.setattr(plateau, "SENTENCES", len(lines) - 1)
    assert target_entropy(task, "train") == pytest.approx(unigram_entropy(lines[::2]))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert target_entropy(object(), "train") is None


def test_the_entropy_of_transcripts_is_counted_without_their_sound(speech_data, tmp_path, monkeypatch):
    task = tasks.setup_task(audio.parse_training(speech_data, tmp_path, "pre_ln_s2t_transformer_s").task)
    task.load_dataset("train")
    monkeypatch.setattr(SpeechToTextDataset, "_get_source_audio", None)
    texts = [task.dataset("train").get_tokenized_tgt_text(index) for index in range(len(task.dataset("train")))]
    assert len(texts) > 1
    assert target_entropy(task, "train") == pytest.approx(unigram_entropy(texts))


class Data(list):
    """A task whose training set is a list, with four tokens as frequent as each other: two bits."""

    target_dictionary = Dictionary()

    def __init__(self) -> None:
        pad = self.target_dictionary.pad()
        super().__init__([{"target": torch.tensor([[4, 5], [6, 7]][n % 2] + [pad])} for n in range(40)])

    def dataset(self, name: str) -> Data:
        assert name == "train"
        return self


def test_a_loss_at_the_entropy_has_failed_and_says_so_once() -> None:
    for below in (1.85, 0.1):
        watch = PlateauWatch(None, 300)
        assert not any(watch.look(update, below, Data(), "train") for update in range(1, 501))
    watch, task = PlateauWatch(None, 300), Data()
    verdicts = {update: watch.look(update, 1.95, task, "train") for update in range(1, 501)}
    assert {update: verdict for update, verdict in verdicts.items() if verdict} == {
        300: "failed to train: training loss 1.95 bits a token after 300 updates, the unigram baseline is 2.00"
    }
    # It learns after all, and is forgotten; then falls back, as Post-LN does after a spike.
    assert not any(watch.look(update, 0.5, task, "train") for update in range(501, 1001))
    assert not watch.failed
    assert any(watch.look(update, 2.5, task, "train") for update in range(1001, 1501))


def test_it_begins_after_warm_up(toy_data: Path, tmp_path: Path) -> None:
    schedule = toy.parse_training(toy_data, tmp_path, "--warmup-updates", "700").lr_scheduler
    for updates, first in ((100, 800), (0, None)):
        watch = PlateauWatch(schedule, updates)
        verdicts = [update for update in range(1, 901) if watch.look(update, 9.0, Data(), "train")]
        assert verdicts == ([first] if first else [])


def test_a_training_that_never_learns_is_ended(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is so low that it stays where it started, above the entropy of the digits."""
    monkeypatch.setattr(plateau, "EVERY", 10)
    flags = ("--lr", "1e-9", "--divergence-plateau", "10", "--diagnostics-interval", "10")
    with pytest.raises(Diverged, match="^failed to train: training loss [45].* after 20 updates, ") as caught:
        training.run("run", *STOP, *flags, updates=25)
    entry = read(training.directory / "run" / "recorder.jsonl")[-1]
    norms = {name.split("/")[0]: value for name, value in entry.values.items() if name.endswith("/gradient_norm")}
    assert f"; stuck in {min(norms, key=norms.get)} (gradient_norm " in str(caught.value)
