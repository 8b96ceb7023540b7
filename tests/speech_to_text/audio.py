"""Features of made-up speech, and the shortest way to train on them and to transcribe, in this process.

A word is a vector, held for some frames and blurred by noise; the text is the words. No sound file and no library for
them is needed: fairseq reads features from ``.npy`` files.
"""

import csv
from pathlib import Path

import numpy as np
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig

from tests.toy import run_training, translate_toy

WORDS = "one two three four five six".split()
FEATURES = 8
SIZES = {"train": 48, "dev": 8, "test": 9}
SETTINGS = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "conv_channels": 12,
    "conv_kernel_sizes": "3,3",
}
TINY_MODEL = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
RECIPE: tuple[str, ...] = tuple(
    "--task speech_to_text --train-subset train --valid-subset dev --max-tokens 800 --max-target-positions 32"
    " --num-workers 0 --optimizer adam --lr 0.004 --lr-scheduler fixed --clip-norm 1.0 --cpu --seed 3"
    " --no-progress-bar --log-format none --no-epoch-checkpoints --disable-validation".split()
)
CRITERION = ("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1")


def write(directory: Path) -> Path:
    directory.mkdir(parents=True)
    draw = np.random.default_rng(1)
    sounds = draw.normal(size=(len(WORDS), FEATURES)).astype(np.float32)
    for split, count in SIZES.items():
        with open(directory / f"{split}.tsv", "w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream, delimiter="\t", lineterminator="\n")
            rows.writerow(["id", "audio", "n_frames", "tgt_text"])
            for number in range(count):
                chosen = draw.integers(len(WORDS), size=draw.integers(2, 6))
                frames = np.repeat(sounds[chosen], draw.integers(5, 9, size=len(chosen)), axis=0)
                frames = (frames + 0.1 * draw.normal(size=frames.shape)).astype(np.float32)
                path = directory / f"{split}_{number}.npy"
                np.save(path, frames)
                rows.writerow([f"{split}_{number}", path.name, len(frames), " ".join(WORDS[one] for one in chosen)])
    dictionary = Dictionary()
    for word in WORDS:
        dictionary.add_symbol(word)
    dictionary.save(str(directory / "dict.txt"))
    (directory / "config.yaml").write_text(
        f"vocab_filename: dict.txt\ninput_feat_per_channel: {FEATURES}\ninput_channels: 1\naudio_root: {directory}\n",
        encoding="utf-8",
    )
    return directory


def parse_training(data: Path, save_dir: Path, arch: str, *flags: str) -> DictConfig:
    criterion = () if "--criterion" in flags else CRITERION
    arguments = [str(data), "--save-dir", str(save_dir), "--arch", arch, *RECIPE, *TINY_MODEL, *criterion, *flags]
    args = options.parse_args_and_arch(options.get_training_parser("speech_to_text"), input_args=arguments)
    return convert_namespace_to_omegaconf(args)


def train(data: Path, save_dir: Path, arch: str, *flags: str) -> Path:
    run_training(parse_training(data, save_dir, arch, *flags))
    return save_dir / "checkpoint_last.pt"


def transcribe(data: Path, checkpoint: Path, results: Path) -> dict[int, str]:
    """``fairseq-generate`` on the test split: what was found, by the number of the sentence."""
    return translate_toy(data, checkpoint, results, "--task", "speech_to_text", "--max-tokens", "800")
