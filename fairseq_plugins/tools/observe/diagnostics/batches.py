"""Sentences to measure with: words by Zipf's law, or a batch of a binarised corpus.

Legend: B sentences, S source tokens, T target tokens.
"""

from argparse import Namespace
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.pipeline.corpus import binarised


class Batch(NamedTuple):
    """Sentence pairs as fairseq's collater lays them out.

    Attributes:
        source: ``(B, S)``, pads on the left; for speech features ``(B, S, F)`` without pads; ``(B, 0)`` for a language
            model.
        lengths: lengths of the sources, ``(B)``.
        previous: the target shifted right, ``(B, T)``, pads on the right.
        target: ``(B, T)``.
    """

    source: Tensor
    lengths: Tensor
    previous: Tensor
    target: Tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Return the inputs of the model."""
        return (self.source, self.lengths, self.previous) if self.source.numel() else (self.previous,)

    def words(self, stack: str, pad: int, stream: Tensor) -> Tensor:
        """Return true where a stack reads a word and not a pad, ``(T, B)`` like ``stream``, ``(T, B, C)``."""
        tokens = self.source if stack == "encoder" else self.previous
        return tokens.ne(pad).t() if tokens.dim() == 2 else torch.ones(stream.shape[:2], dtype=torch.bool)


Make = Callable[[int, int], Batch]
"""Makes a batch from the number of sentences and the maximum number of tokens of a sentence on either side."""


def zipf_batch(task: Any, sentences: int, length: int, seed: int = 1) -> Batch:
    """Return pairs of made-up sentences of one length: the n-th word has weight 1 / n, and each ends in ``</s>``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for words in (task.source_dictionary, task.target_dictionary):
        frequencies = 1 / torch.arange(1, len(words) - words.nspecial + 1, dtype=torch.float)
        numbers = torch.multinomial(frequencies, sentences * length, replacement=True, generator=generator)
        drawn.append(numbers.view(sentences, length) + words.nspecial)
    source, target = drawn
    source[:, -1] = target[:, -1] = task.target_dictionary.eos()
    return Batch(source, torch.full((sentences,), length), target.roll(1, dims=1), target)


def read_data(directory: Path) -> tuple[Any, Make]:
    """Return the task of a binarised corpus, and a function that makes a batch of its validation split.

    Args:
        directory: made by fairseq-preprocess or ``fairseq-deep prepare``.

    Raises:
        UserError: there is no such corpus, or, from the function, no sentence is that short.
    """
    data = binarised(directory)
    if not list(data.glob("dict.*.txt")):
        raise UserError(f"{directory}: no binarised corpus (there is no dict.*.txt)")
    # Values that other groups of the configuration would provide.
    config = TranslationConfig(data=str(data), dataset_impl=None, required_seq_len_multiple=1, train_subset="train")
    task = TranslationTask.setup_task(config)

    def first_sentences(sentences: int, length: int) -> Batch:
        if "valid" not in task.datasets:
            task.load_dataset("valid")
        dataset = task.dataset("valid")
        short = (number for number in range(len(dataset)) if dataset.num_tokens(number) <= length)
        chosen = [dataset[number] for number in islice(short, sentences)]
        if not chosen:
            raise UserError(f"{data}: no validation sentence has at most {length} tokens; give a larger --length")
        sample = dataset.collater(chosen)
        inputs = Namespace(**sample["net_input"])
        return Batch(inputs.src_tokens, inputs.src_lengths, inputs.prev_output_tokens, sample["target"])

    return task, first_sentences
