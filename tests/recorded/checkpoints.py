"""Small checkpoints as an earlier revision wrote them: today's code loads them and finds the same translations."""

import gzip
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.dataclass.configs import GenerationConfig
from fairseq.sequence_scorer import SequenceScorer
from omegaconf import OmegaConf
from torch import Tensor, nn

DIRECTORY = Path(__file__).parent / "checkpoints"
SENTENCES = 6
"""Number of sentences of the test split that are stored with a checkpoint."""


STORED = {
    # Weights and buffers of the residual, what is carried from layer to layer, weights of a history.
    "admin_realformer": "translation",  # --residual admin --attention realformer --base-init xavier
    # State of the whole stack, and an attention that keeps a running sum while it translates.
    "dlcl_matt": "translation",  # --norm-position pre --layer-aggregation dlcl --attention matt
    "admin_lm": "language_model",
    "b2t_s2t": "speech_to_text",
}
"""The family of each."""


def load(name: str) -> tuple[list[nn.Module], Any]:
    """The model as fairseq's commands load it, and its task, which reads the dictionaries next to the checkpoint."""
    data = {"data": str(DIRECTORY / name)}
    packed = DIRECTORY / name / "checkpoint.pt.gz"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "checkpoint.pt"
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides=data)
    for model in models:
        model.eval()
    return models, task


def outputs(name: str) -> list[list[str]]:
    """A row for each sentence: translation and its score, or the scores of the tokens of a text."""
    models, task = load(name)
    with torch.no_grad():
        return OUTPUTS[STORED[name]](models, task, DIRECTORY / name)


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
    sample = {"net_input": {"src_tokens": previous, "src_lengths": target.ne(words.pad()).sum(dim=1)}, "target": target}
    found = SequenceScorer(words).generate(models, sample)
    return [[*map(repr, best["positional_scores"].tolist())] for best, *_ in found]


OUTPUTS: dict[str, Callable[[list[nn.Module], Any, Path], list[list[str]]]] = {
    "translation": _translations,
    "language_model": _scores,
    "speech_to_text": _transcripts,
}


def texts() -> Iterator[tuple[str, str]]:
    """Outputs of today's code for every checkpoint."""
    for name in STORED:
        yield f"{name}/outputs.tsv", "".join("\t".join(row) + "\n" for row in outputs(name))
