"""Training ``post_ln`` and ``pre_ln`` is training stock fairseq: the same losses and weights, update for update."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.speech_to_text import SpeechToTextTask
from fairseq.tasks.translation import TranslationTask

from tests import toy
from tests.language_model import text
from tests.speech_to_text import audio

Flags = tuple[str, ...]
UPDATES = 6
BOTH = ("--encoder-normalize-before", "--decoder-normalize-before")
DROPOUTS = ("--dropout", "0.2", "--attention-dropout", "0.1", "--share-all-embeddings", "--no-epoch-checkpoints")
ENDS = ("--decoder-input-dim", "16", "--decoder-output-dim", "16")
ADAPTIVE = tuple(
    "--adaptive-input-cutoff 8,14 --adaptive-softmax-cutoff 8,14 --adaptive-input-factor 2 --adaptive-softmax-factor 2"
    " --criterion adaptive_loss --ddp-backend legacy_ddp".split()  # that criterion demands it
)
CTC = ("--criterion", "label_smoothed_cross_entropy_with_ctc", "--label-smoothing", "0.1", "--ctc-weight", "0.3")
TWO_DIMENSIONAL = ("--conv-version", "convtransformer", "--share-decoder-input-output-embed")
FROZEN = ("--encoder-freezing-updates", "4", "--dropout", "0.2")
TRANSLATION, LANGUAGE, SPEECH = TranslationTask, LanguageModelingTask, SpeechToTextTask
TIED = ("--share-decoder-input-output-embed", "--add-bos-token")
LM, S2T = ("pre_ln_transformer_lm", "transformer_lm"), ("pre_ln_s2t_transformer_s", "s2t_transformer_s")
CASES: dict[str, tuple[type[Any], Flags, Flags, Flags]] = {
    "post_ln": (TRANSLATION, ("post_ln_transformer",), ("transformer",), ()),
    "pre_ln": (TRANSLATION, ("pre_ln_transformer",), ("transformer", *BOTH), ()),
    "hybrid": (TRANSLATION, ("post_ln_transformer", "--norm-position", "post,pre"), ("transformer", BOTH[1]), ()),
    "lm post_ln": (LANGUAGE, ("post_ln_transformer_lm",), ("transformer_lm",), ()),
    "lm pre_ln": (LANGUAGE, LM[:1], (LM[1], BOTH[1]), ()),
    "lm tied": (LANGUAGE, LM[:1], (LM[1], BOTH[1]), TIED),
    "lm wiki103": (LANGUAGE, ("pre_ln_transformer_lm_wiki103",), ("transformer_lm_wiki103",), ADAPTIVE),
    # Stock is Pre-LN in spite of its flags.
    "s2t": (SPEECH, S2T[:1], S2T[1:], ()),
    "s2t CTC": (SPEECH, S2T[:1], S2T[1:], CTC),
    "s2t two-dimensional": (SPEECH, S2T[:1], S2T[1:], TWO_DIMENSIONAL),
    "s2t frozen": (SPEECH, S2T[:1], S2T[1:], FROZEN),
}
"""Task; our architecture and flags; stock's; flags of both."""
SLOW = ("lm pre_ln", "s2t two-dimensional", "s2t frozen")
"""For these ``test_stock_model.py`` compares one step."""


@pytest.fixture
def data(toy_data: Path, characters: Path, speech_data: Path) -> dict[type[Any], Path]:
    return {TRANSLATION: toy_data, LANGUAGE: characters, SPEECH: speech_data}


TRAIN: dict[type[Any], Callable[..., Path]] = {
    TRANSLATION: lambda data, saved, arch, *flags: toy.train_toy(data, saved, *DROPOUTS, *flags, arch=arch),
    LANGUAGE: text.train,
    SPEECH: audio.train,
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in CASES]
)
def test_losses_and_weights_are_equal(data: dict[type[Any], Path], tmp_path: Path, case: str) -> None:
    task, ours, stock, flags = CASES[case]
    ends = ENDS if task is LANGUAGE else ()
    trained = []
    for name, own in (("ours", ours), ("stock", (*stock, *ends))):
        words = (data[task], tmp_path / name, *own, *flags, "--max-update", str(UPDATES))
        trained.append(toy.losses_of(task, functools.partial(TRAIN[task], *words)))
    (our_losses, our_state), (losses, state) = trained
    assert len(losses) == len(set(losses)) == UPDATES, "the model was learning"
    assert our_losses == losses
    our_weights, weights = our_state["model"], state["model"]
    assert list(our_weights) == list(weights)
    written = [name for name in weights if not name.endswith("_float_tensor")]  # that one is uninitialised
    assert [name for name in written if not torch.equal(our_weights[name], weights[name])] == []
