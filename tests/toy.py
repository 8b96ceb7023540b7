"""A tiny parallel corpus and the shortest way to train on it, in this process: for every test that needs fairseq whole.

The task: number words on the source side, the same numbers as digits in reverse order on the target side.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq_cli import generate, preprocess, train
from omegaconf import DictConfig

from tests import texts

WORDS = "null eins zwei drei vier fünf sechs sieben acht neun".split()
SENTENCES = ("Ja, {}!", "Nein: {}.", "{} (oder {})?", "Er sagt: „{}“.")
SIZES: Mapping[str, int] = {"train": 120, "valid": 20, "test": 60}
"""Sentences of each split; only the training split's number is a multiple of 8."""

Flags = tuple[str, ...]
TINY_MODEL: Flags = tuple(
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 32"
    " --decoder-ffn-embed-dim 32 --encoder-attention-heads 2 --decoder-attention-heads 2".split()
)
RECIPE: Flags = tuple(
    "--optimizer adam --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 4 --clip-norm 1.0 --cpu --seed 3"
    " --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 120 --num-workers 0"
    " --no-progress-bar --log-format none".split()
)
PRECISIONS: Mapping[str, Flags] = {
    "single": (),
    "bf16": ("--bf16",),
    "memory_efficient_bf16": ("--memory-efficient-bf16",),
    "fp16": ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "4"),
    "memory_efficient_fp16": ("--memory-efficient-fp16", "--fp16-init-scale", "4"),
}
"""Flags of each precision that fairseq has besides ``--amp``."""


def sentence_pairs(count: int, seed: int, longest: int = 9) -> list[tuple[str, str]]:
    """``count`` pairs of 2 to ``longest`` words each; the same for the same ``seed``."""
    chosen = random.Random(seed)
    numbers = [[chosen.randrange(len(WORDS)) for _ in range(chosen.randint(2, longest))] for _ in range(count)]
    return [(" ".join(WORDS[n] for n in line), " ".join(str(n) for n in reversed(line))) for line in numbers]


def write_corpus(directory: Path, sizes: Mapping[str, int] = SIZES, source: str = "de", target: str = "en") -> None:
    """Write ``<split>.de`` and ``<split>.en`` into ``directory``, one sentence a line, tokens split by blanks."""
    for seed, (split, count) in enumerate(sizes.items(), start=1):
        for language, lines in zip((source, target), zip(*sentence_pairs(count, seed), strict=True), strict=True):
            texts.write(directory / f"{split}.{language}", lines)


def write_sentences(
    directory: Path, sizes: Mapping[str, int] = {"train": 200, "valid": 10, "test": 24}, longest: int = 5
) -> None:
    """Number words in sentences with punctuation, so that tokeniser, entities and subwords all matter."""
    for seed, (name, count) in enumerate(sizes.items(), start=1):
        for language, side in zip(("de", "en"), zip(*sentence_pairs(count, seed, longest), strict=True), strict=True):
            lines = (SENTENCES[number % len(SENTENCES)].replace("{}", words) for number, words in enumerate(side))
            texts.write(directory / f"{name}.{language}", lines)


def run_preprocess(arguments: Sequence[str]) -> None:
    """``fairseq-preprocess`` in this process."""
    preprocess.main(options.get_preprocessing_parser().parse_args([*arguments, "--workers", "1"]))


def binarise_text(directory: Path, splits: Sequence[str], source: str = "de", target: str = "en") -> Path:
    """Binarise the text files in ``directory / "text"``, with one dictionary for both; the binarised directory."""
    destination = directory / "data-bin"
    arguments = ["-s", source, "-t", target, "--joined-dictionary", "--destdir", str(destination)]
    for split in splits:
        arguments += [f"--{split}pref", str(directory / "text" / split)]
    run_preprocess(arguments)
    return destination


def binarise(directory: Path, sizes: Mapping[str, int] = SIZES, source: str = "de", target: str = "en") -> Path:
    """Write the toy corpus under ``directory`` and binarise it; returns the binarised directory."""
    write_corpus(directory / "text", sizes, source, target)
    return binarise_text(directory, tuple(sizes), source, target)


def parse_training(
    data: Path, run: Path, *flags: str, arch: str = "transformer", model: Flags = TINY_MODEL, validate: bool = False
) -> DictConfig:
    """Arguments of ``fairseq-train`` with the toy recipe, then ``flags``, which override it."""
    arguments = [str(data), "--save-dir", str(run), "--arch", arch, *model, *RECIPE]
    arguments += [*([] if validate else ["--disable-validation"]), *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)
    return convert_namespace_to_omegaconf(args)


def run_training(config: DictConfig) -> None:
    """``fairseq-train`` in this process, from a clean state: no meters or best loss of an earlier run."""
    forget_earlier_trainings()
    train.main(config)


def losses_of(task: type[Any], train: Callable[[], Path]) -> tuple[list[float], dict[str, Any]]:
    """The unrounded loss for each sample of every update that ``train`` makes, and the checkpoint that it returns."""
    losses: list[float] = []
    train_step = task.train_step

    def listen(*args: Any, **kwargs: Any) -> Any:
        result = train_step(*args, **kwargs)
        losses.append(result[0].item() / result[1])
        return result

    with mock.patch.object(task, "train_step", listen):
        path = train()
    return losses, torch.load(path, weights_only=False)  # stock's models for speech keep an argparse.Namespace


def forget_earlier_trainings() -> None:
    """Reset fairseq's process-wide state of a training."""
    metrics.reset()
    for function, attribute in ((checkpoint_utils.save_checkpoint, "best"), (train.should_stop_early, "best")):
        if hasattr(function, attribute):
            delattr(function, attribute)


def train_toy(data: Path, save_dir: Path, *flags: str, **settings: Any) -> Path:
    """Train the tiny model, with the settings of :func:`parse_training`; return the path of ``checkpoint_last.pt``."""
    run_training(parse_training(data, save_dir, *flags, **settings))
    return save_dir / "checkpoint_last.pt"


def weights_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The weights in a checkpoint."""
    weights: dict[str, torch.Tensor] = torch.load(checkpoint, weights_only=True)["model"]
    return weights


def translate_toy(data: Path, checkpoint: Path, results: Path, *flags: str) -> dict[int, str]:
    """``fairseq-generate`` on the test set, in this process; its report is ``results/generate-test.txt``.

    Returns the best translation of each sentence by its number in the file.
    """
    arguments = [str(data), "--path", str(checkpoint), "--gen-subset", "test", "--results-path", str(results), "--cpu"]
    arguments += ["--beam", "2", "--max-len-b", "12", "--max-tokens", "400", "--num-workers", "0", *flags]
    args = options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
    generate.main(convert_namespace_to_omegaconf(args))
    return translations_in(results / f"shard{args.shard_id}of{args.num_shards}" if args.num_shards > 1 else results)


def translations_in(results: Path) -> dict[int, str]:
    """The best translation of each sentence in the report of ``fairseq-generate``, by its number in the file."""
    translations = {}
    for line in (results / "generate-test.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("H-"):
            number, _, text = line[2:].split("\t")
            translations[int(number)] = text
    return translations
