"""Small checkpoints as an earlier revision wrote them: today's code loads them and finds the same translations."""

from __future__ import annotations

import csv
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.dataclass.configs import GenerationConfig
from fairseq.sequence_scorer import SequenceScorer
from omegaconf import OmegaConf
from torch import Tensor, nn

from tests import toy
from tests.language_model import text
from tests.speech_to_text import audio

DIRECTORY = Path(__file__).parent / "checkpoints"
WIDTHS = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --decoder-embed-dim 8 --decoder-ffn-embed-dim 12".split()
TRANSLATION = "--source-lang de --target-lang en --dropout 0 --max-tokens 800 --lr 0.02".split()
"""Enough for confident translations, so that rounding never chooses between two words."""
SENTENCES = 6
"""Number of sentences of the test split that are stored with a checkpoint."""


class Stored(NamedTuple):
    """How a checkpoint was trained. Only the file shows its present state."""

    family: str
    arch: str
    flags: str
    updates: int


STORED: dict[str, Stored] = {
    # Weights and buffers of the residual, what is carried from layer to layer, weights of a history.
    "admin_realformer": Stored(
        "translation", "deep_transformer", "--residual admin --attention realformer --base-init xavier", 400
    ),
    # State of the whole stack, and an attention that keeps a running sum while it translates.
    "dlcl_matt": Stored("translation", "deep_transformer", "--norm pre --history dlcl --attention matt", 400),
    "admin_lm": Stored("language_model", "admin_transformer_lm", "", 40),
    "b2t_s2t": Stored("speech_to_text", "b2t_s2t_transformer", "", 150),
}


# Loading -------------------------------------------------------------------------------------------------------------


def path_of(name: str) -> Path:
    """Path of a checkpoint, which is compressed to a third."""
    return DIRECTORY / name / "checkpoint.pt.gz"


@contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """The checkpoint as fairseq wrote it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "checkpoint.pt"
        path.write_bytes(gzip.decompress(path_of(name).read_bytes()))
        yield path


def load(name: str) -> tuple[list[nn.Module], Any]:
    """The model as fairseq's commands load it, and its task, which reads the dictionaries beside the checkpoint."""
    data = {"data": str(DIRECTORY / name)}
    with unpacked(name) as path:
        found, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides=data)
    for model in found:
        model.eval()
    return found, task


def outputs(name: str) -> list[list[str]]:
    """A row for each sentence: translation and its score, or the scores of the tokens of a text."""
    models, task = load(name)
    with torch.no_grad():
        return OUTPUTS[STORED[name].family](models, task, DIRECTORY / name)


def outputs_text(name: str) -> str:
    """The rows of :func:`outputs`."""
    return "".join("\t".join(row) + "\n" for row in outputs(name))


def _lines(directory: Path) -> list[str]:
    return (directory / "sentences.txt").read_text(encoding="utf-8").splitlines()


def _encoded(words: Dictionary, lines: list[str]) -> list[Tensor]:
    return [words.encode_line(line, add_if_not_exist=False).long() for line in lines]


def _search(models: list[nn.Module], task: Any, net_input: dict[str, Tensor]) -> list[list[str]]:
    search = OmegaConf.structured(GenerationConfig(beam=3, max_len_b=12))
    generator = task.build_generator(models, search)
    found = task.inference_step(generator, models, {"net_input": net_input})
    words = task.target_dictionary
    return [[words.string(best["tokens"]), repr(best["score"].item())] for best, *_ in found]


def _translations(models: list[nn.Module], task: Any, directory: Path) -> list[list[str]]:
    words = task.source_dictionary
    sources = _encoded(words, _lines(directory))
    tokens = collate_tokens(sources, words.pad(), left_pad=True)
    lengths = torch.tensor([len(source) for source in sources])
    return _search(models, task, {"src_tokens": tokens, "src_lengths": lengths})


def _transcripts(models: list[nn.Module], task: Any, directory: Path) -> list[list[str]]:
    stored = np.load(directory / "features.npz")
    sounds = [torch.from_numpy(stored[name]).float() for name in stored.files]
    features = nn.utils.rnn.pad_sequence(sounds, batch_first=True)
    lengths = torch.tensor([len(sound) for sound in sounds])
    return _search(models, task, {"src_tokens": features, "src_lengths": lengths})


def _scores(models: list[nn.Module], task: Any, directory: Path) -> list[list[str]]:
    words = task.target_dictionary
    target = collate_tokens(_encoded(words, _lines(directory)), words.pad())
    previous = torch.cat([torch.full((len(target), 1), words.eos()), target[:, :-1]], dim=1)
    sample = {
        "net_input": {"src_tokens": previous, "src_lengths": target.ne(words.pad()).sum(dim=1)},
        "target": target,
    }
    found = SequenceScorer(words).generate(models, sample)
    return [[*map(repr, best["positional_scores"].tolist())] for best, *_ in found]


OUTPUTS: dict[str, Callable[[list[nn.Module], Any, Path], list[list[str]]]] = {
    "translation": _translations,
    "language_model": _scores,
    "speech_to_text": _transcripts,
}


# Training ------------------------------------------------------------------------------------------------------------


def make(name: str) -> None:
    """Train on made-up text; keep the last checkpoint with its dictionaries and some sentences of the test split."""
    kept = DIRECTORY / name
    kept.mkdir(parents=True, exist_ok=True)
    # Paths go into a checkpoint; relative ones say nothing about this machine.
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        patched.chdir(directory)
        TRAIN[STORED[name].family](STORED[name], kept)


def _flags(stored: Stored, widths: list[str]) -> list[str]:
    small = ("--no-epoch-checkpoints", "--no-save-optimizer-state")
    return ["--max-update", str(stored.updates), *widths, *small, *stored.flags.split()]


def _train_translation(stored: Stored, kept: Path) -> None:
    data = toy.binarise(Path("."), {"train": 400, "valid": 10, "test": SENTENCES})
    path = toy.train_toy(data, Path("saved"), *TRANSLATION, *_flags(stored, WIDTHS), arch=stored.arch)
    dictionaries = {dictionary.name: dictionary for dictionary in data.glob("dict.*")}
    _keep(kept, path, {"sentences.txt": Path("text/test.de"), **dictionaries})


def _train_language_model(stored: Stored, kept: Path) -> None:
    data = text.binarise(Path("."))
    path = text.train(data, Path("saved"), stored.arch, *_flags(stored, WIDTHS[4:]))
    _keep(kept, path, {"dict.txt": data / "dict.txt"})
    lines = Path("text/test.chars").read_text(encoding="utf-8").splitlines(keepends=True)
    (kept / "sentences.txt").write_text("".join(lines[:SENTENCES]), encoding="utf-8")


def _train_speech_to_text(stored: Stored, kept: Path) -> None:
    data = audio.write(Path("speech"))
    path = audio.train(data, Path("saved"), stored.arch, *_flags(stored, WIDTHS))
    _keep(kept, path, {"dict.txt": data / "dict.txt", "config.yaml": data / "config.yaml"})
    with open(data / "test.tsv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))[:SENTENCES]
    np.savez_compressed(kept / "features.npz", **{row["id"]: np.load(data / row["audio"]) for row in rows})


TRAIN: dict[str, Callable[[Stored, Path], None]] = {
    "translation": _train_translation,
    "language_model": _train_language_model,
    "speech_to_text": _train_speech_to_text,
}


def _keep(directory: Path, checkpoint: Path, files: dict[str, Path]) -> None:
    (directory / "checkpoint.pt.gz").write_bytes(gzip.compress(checkpoint.read_bytes(), mtime=0))
    for name, path in files.items():
        shutil.copyfile(path, directory / name)


def texts() -> Iterator[tuple[str, str]]:
    """Outputs of today's code for every checkpoint; a missing one, or with CHECKPOINTS=1 each, is trained first."""
    for name in STORED:
        if os.environ.get("CHECKPOINTS") == "1" or not path_of(name).exists():
            make(name)
        yield f"{name}/outputs.tsv", outputs_text(name)
