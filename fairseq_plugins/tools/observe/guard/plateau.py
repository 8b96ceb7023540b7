"""Detect failed trainings: the loss stays at the entropy of the token frequencies."""

import logging
import math
from collections import Counter
from typing import Any

import torch
from fairseq.data.audio.speech_to_text_dataset import SpeechToTextDataset

from fairseq_plugins.tools.observe.guard.signals import Band
from fairseq_plugins.tools.unigram_entropy import FAILED_TO_TRAIN, entropy, learned_nothing

logger = logging.getLogger(__name__)

EVERY = 100
"""Updates between two checks of the running mean, and its window."""
SENTENCES = 20_000
"""Number of training sentences, evenly spread over the training set, for counting frequencies."""


def target_entropy(task: Any, subset: str) -> float | None:
    """Return the entropy of a training set's target tokens in bits per token, end marks included; ``None`` if unknown.

    The task has the subset of that name loaded.
    """
    counts: Counter[int] = Counter()
    try:
        data, pad = task.dataset(subset), task.target_dictionary.pad()
        # Data sets that draw random numbers must not change those of the training.
        with torch.random.fork_rng(devices=[]):
            for index in range(0, len(data), math.ceil(len(data) / SENTENCES) or 1):
                # Indexing would also read the audio.
                if isinstance(data, SpeechToTextDataset):
                    text = data.get_tokenized_tgt_text(index)
                    target = data.tgt_dict.encode_line(text, add_if_not_exist=False, append_eos=data.append_eos)
                else:
                    target = data[index]["target"]
                counts.update(target.flatten().tolist())
        del counts[pad]
        return entropy(counts.values())
    # There are many kinds of data sets, and none of their errors may end a training that has come so far.
    except Exception as error:
        logger.warning("divergence guard: token frequencies of the training set are unknown (%r)", error)
        return None


class PlateauWatch:
    """Compares the running training loss with that entropy, from ``updates`` after warm-up on; 0 for never."""

    def __init__(self, schedule: Any, updates: int) -> None:
        warm_up = getattr(schedule, "warmup_updates", 0) or getattr(schedule, "warmup_steps", 0) or 0
        self._begin = int(warm_up) + updates if updates else 0
        self._mean = Band(0.0, window=EVERY)
        self._entropy: float | None = None
        self.failed = False

    def look(self, update: int, nll: float, task: Any, subset: str) -> str | None:
        """Add the negative log-likelihood of an applied update, in bits a token; returns the verdict when it is new.

        The training set ``subset`` of the task is read at most once.
        """
        self._mean.take(nll)
        if not self._begin or update < self._begin or update % EVERY or self._mean.count < EVERY:
            return None
        if self._entropy is None:
            self._entropy = target_entropy(task, subset)
        if self._entropy is None:
            self._begin = 0
            return None
        before, self.failed = self.failed, learned_nothing(self._mean.mean, self._entropy)
        if not self.failed or before:
            return None
        return (
            f"{FAILED_TO_TRAIN}: training loss {self._mean.mean:.2f} bits a token after {update} updates, "
            f"the unigram baseline is {self._entropy:.2f}"
        )
