"""Training of one method: the command, its resume, and which checkpoints its average is made of."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_plugins.checkpoints.damaged import mend_last_checkpoint
from fairseq_plugins.checkpoints.selection import UPDATE_CHECKPOINT, numbered_checkpoints
from fairseq_plugins.demo.children import Children, CommandFailed, fairseq_command
from fairseq_plugins.demo.stage import Settings, differing, read_stamp, write_stamp
from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline.training_log import read_log

STOCK = "transformer"
"""fairseq's own Transformer, to compare with."""


@dataclass(frozen=True)
class Recipe:
    """Size and budget, the same for every method."""

    encoder_layers: int
    decoder_layers: int
    width: int
    ffn_width: int
    heads: int
    dropout: float
    learning_rate: float
    warmup_updates: int
    label_smoothing: float
    clip_norm: float
    max_update: int
    max_tokens: int
    save_interval: int
    """Updates between checkpoints, each with a validation."""
    average: int
    """How many of the last checkpoints are averaged."""
    seed: int


def architecture_of(method: str) -> str:
    """The ``--arch`` of a method."""
    return method if method == STOCK else f"{method}_transformer"


def train_command(method: str, recipe: Recipe, data: Path, checkpoints: Path, *, gpu: bool) -> list[str]:
    """The complete training command of one method."""
    log_interval = max(1, min(50, recipe.max_update // 50))
    flags = {
        "--arch": architecture_of(method),
        "--encoder-layers": recipe.encoder_layers,
        "--decoder-layers": recipe.decoder_layers,
        "--encoder-embed-dim": recipe.width,
        "--decoder-embed-dim": recipe.width,
        "--encoder-ffn-embed-dim": recipe.ffn_width,
        "--decoder-ffn-embed-dim": recipe.ffn_width,
        "--encoder-attention-heads": recipe.heads,
        "--decoder-attention-heads": recipe.heads,
        "--dropout": recipe.dropout,
        "--criterion": "label_smoothed_cross_entropy",
        "--label-smoothing": recipe.label_smoothing,
        "--optimizer": "adam",
        "--adam-betas": "(0.9, 0.98)",
        "--lr-scheduler": "inverse_sqrt",
        "--lr": recipe.learning_rate,
        "--warmup-updates": recipe.warmup_updates,
        "--clip-norm": recipe.clip_norm,
        "--max-tokens": recipe.max_tokens,
        "--max-update": recipe.max_update,
        "--seed": recipe.seed,
        "--save-dir": checkpoints,
        "--save-interval-updates": recipe.save_interval,
        "--keep-interval-updates": recipe.average,
        "--log-format": "json",
        "--log-interval": log_interval,
        "--num-workers": 0,
        # Validate with each checkpoint rather than at each epoch, so that every method has the same points.
        "--validate-interval-updates": recipe.save_interval,
        "--validate-interval": 10**6,
        "--save-interval": 10**6,
        # Only so is a resumed training the same training from the second epoch on.
        "--update-epoch-batch-itr": True,
    }
    switches = ["--share-all-embeddings", "--no-epoch-checkpoints"] + ([] if gpu else ["--cpu"])
    return [*fairseq_command("train"), str(data), *(str(part) for pair in flags.items() for part in pair), *switches]


class Training:
    """The training of one method in its own directory; finished, resumed or started, as it is found."""

    def __init__(self, method: str, recipe: Recipe, data: Path, directory: Path, *, data_settings: Settings) -> None:
        self.method = method
        self.recipe = recipe
        self.data = data
        self.directory = directory
        self.log_file = directory / "train.log"
        self.checkpoints = directory / "checkpoints"
        self._outcome = directory / "outcome.json"
        self.settings = json.loads(json.dumps({"method": method, **asdict(recipe), "data": data_settings}))

    def conflict(self) -> str | None:
        """Why this training cannot continue what its directory holds; None where it can."""
        old = read_stamp(self.directory)
        if old is None or not self.checkpoints.exists():
            return None
        changes = differing(old, self.settings)
        if not changes:
            return None
        return (
            f"{self.directory}: holds a training with other settings ({'; '.join(changes)}); "
            "give another --out, or delete it"
        )

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end, or to a loss that is not finite."""
        return self._outcome.is_file()

    def run(self, children: Children, *, gpu: bool) -> None:
        """Train to the end; a no-op if that was done. A loss that is not finite is an outcome, not a failure.

        Raises:
            CommandFailed: training ended for any other reason.
        """
        if self.finished:
            return
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_stamp(self.directory, self.settings)
        mend_last_checkpoint(self.checkpoints)
        command = train_command(self.method, self.recipe, self.data, self.checkpoints, gpu=gpu)
        write_whole(self.directory / "command.json", json.dumps(command, indent=1) + "\n")
        try:
            children.run(f"training of {self.method}", command, self.log_file, append=True)
        except CommandFailed:
            if not read_log(self.log_file).not_finite:
                raise
        write_whole(self._outcome, json.dumps({"updates": read_log(self.log_file).updates}) + "\n")

    def shown_command(self) -> str:
        """The command that trained it, as one would type it in the job's directory; empty before it has begun."""
        try:
            command = json.loads((self.directory / "command.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        typed = ["fairseq-deep", "train", *command[len(fairseq_command("train")) :]]
        return shlex.join(str(word).removeprefix(f"{self.directory.parent}/") for word in typed)

    def to_average(self) -> list[Path]:
        """The last checkpoints, oldest first; the very last may have another name, at the end of an epoch."""
        saved = numbered_checkpoints(self.checkpoints, UPDATE_CHECKPOINT)
        last = self.checkpoints / "checkpoint_last.pt"
        at_end = [path for path in saved if path.name.endswith(f"_{self.recipe.max_update}.pt")]
        if last.is_file() and not at_end:
            saved.append(last)
        return saved[-self.recipe.average :]
