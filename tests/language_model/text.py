"""A tiny character-level text, and the shortest way to train on it and to evaluate, in this process."""

import random
from collections.abc import Sequence
from pathlib import Path

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm
from omegaconf import DictConfig

from tests.toy import run_preprocess, run_training

TINY_MODEL: tuple[str, ...] = tuple(
    "--decoder-layers 2 --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2".split()
)
RECIPE: tuple[str, ...] = tuple(
    "--task language_modeling --tokens-per-sample 32 --sample-break-mode none --max-tokens 256 --num-workers 0"
    " --optimizer adam --lr 0.005 --lr-scheduler fixed --clip-norm 1.0 --cpu --seed 3"
    " --no-progress-bar --log-format none --no-epoch-checkpoints".split()
)
SPACE = "_"
"""The token of a space; a token of the text is one character."""


def binarise(directory: Path) -> Path:
    """Write sums of small numbers, one a line, ``three and four are 7``, and binarise them character by character.

    Returns the binarised directory. The text itself lies next to it, as ``text/<split>.txt``.
    """
    words, written = "zero one two three four".split(), directory / "text"
    written.mkdir(parents=True)
    arguments = ["--only-source", "--destdir", str(directory / "data-bin")]
    for seed, (split, count) in enumerate({"train": 80, "valid": 12, "test": 12}.items(), start=1):
        draw = random.Random(seed)
        pairs = [(draw.randrange(5), draw.randrange(5)) for _ in range(count)]
        text = "".join(f"{words[a]} and {words[b]} are {a + b}\n" for a, b in pairs)
        (written / f"{split}.txt").write_text(text, encoding="utf-8")
        characters = "".join(" ".join(line.replace(" ", SPACE)) + "\n" for line in text.splitlines())
        (written / f"{split}.chars").write_text(characters, encoding="utf-8")
        arguments += [f"--{split}pref", str(written / f"{split}.chars")]
    run_preprocess(arguments)
    return directory / "data-bin"


def parse_training(data: Path, save_dir: Path, arch: str, *flags: str, model: Sequence[str] = TINY_MODEL) -> DictConfig:
    arguments = [str(data), "--save-dir", str(save_dir), "--arch", arch, *RECIPE, *model]
    arguments += ["--criterion", "cross_entropy", "--disable-validation", *flags]
    args = options.parse_args_and_arch(options.get_training_parser("language_modeling"), input_args=arguments)
    return convert_namespace_to_omegaconf(args)


def train(data: Path, save_dir: Path, arch: str, *flags: str) -> Path:
    run_training(parse_training(data, save_dir, arch, *flags))
    return save_dir / "checkpoint_last.pt"


def evaluate(data: Path, checkpoint: Path, *flags: str) -> dict[str, float]:
    """``fairseq-eval-lm`` on the test split: its loss, in base 2 for each token, and its perplexity."""
    arguments = [str(data), "--path", str(checkpoint), "--gen-subset", "test", "--cpu", "--num-workers", "0"]
    arguments += ["--task", "language_modeling", "--tokens-per-sample", "32", "--max-tokens", "256", *flags]
    parser = options.get_eval_lm_parser()
    results = eval_lm.main(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=arguments)))
    return {name: float(value) for name, value in results.items()}
