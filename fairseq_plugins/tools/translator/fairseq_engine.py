"""The model of a package in PyTorch, searched as fairseq does."""

from collections.abc import Sequence
from threading import RLock
from typing import Any

import torch
from fairseq.data.data_utils import collate_tokens
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugins.errors import UserError
from fairseq_plugins.processor import core_count
from fairseq_plugins.tools.decoder import Hypothesis, TaskDecoder
from fairseq_plugins.tools.translator.engines import BATCH, FAIRSEQ, SearchOptions, Tokens, batches, gpu_of


class FairseqEngine:
    """The model of a package, in evaluation mode, by fairseq's search as ``FairseqTask.build_generator`` makes it."""

    def __init__(self, model: Any, dictionaries: Any, options: SearchOptions) -> None:
        self.source, self.target = dictionaries.source_dictionary, dictionaries.target_dictionary
        gpu = gpu_of(options, torch.cuda.device_count())
        self.device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
        self.model, self.options = model.to(self.device), options
        # A search sets the model up for its steps.
        self._lock = RLock()
        if options.processes > 1:
            torch.set_num_threads(max(1, core_count() // options.processes))
        self.task = TranslationTask(TranslationConfig(), self.source, self.target)
        self.decoders: dict[bool, TaskDecoder] = {}
        self.label = f"{FAIRSEQ}, float32, {self.device.type}"

    def search(self, sentences: Sequence[Tokens], nbest: int = 1, alignment: bool = False) -> list[list[Hypothesis]]:
        """Return the best translations of each sentence, none of which is empty, in order; threads take turns."""
        numbers = [self._numbers(self.source, sentence) for sentence in sentences]
        hypotheses: dict[int, list[Hypothesis]] = {}
        with self._lock:
            for batch in batches([len(sentence) for sentence in numbers], self.options.batch or BATCH):
                inputs = self._inputs([numbers[index] for index in batch])
                hypotheses.update(zip(batch, self._searched(inputs, nbest, alignment), strict=True))
        return [hypotheses[index] for index in range(len(sentences))]

    def _searched(self, inputs: dict[str, torch.Tensor], nbest: int, alignment: bool) -> list[list[Hypothesis]]:
        """Return the best translations of each sentence of a batch; a search with ``alignment`` keeps the attention."""
        if alignment not in self.decoders:
            end = torch.tensor([[self.source.eos()]], device=self.device)
            with torch.no_grad():
                if alignment and self.model(end, torch.ones_like(end[0]), end)[1]["attn"][0] is None:
                    raise UserError("--alignment: this model has no cross-attention, from which an alignment is read")
            search = {**self.options.search, "print_alignment": "hard" if alignment else None}
            self.decoders[alignment] = TaskDecoder(self.task, self.model, search)
        return self.decoders[alignment]({"id": torch.arange(len(inputs["src_tokens"])), "net_input": inputs}, nbest)

    def score(self, sentences: Sequence[Tokens], targets: Sequence[Tokens]) -> list[list[float]]:
        """Return the log-probability (natural log) of each token of each target, and of its end.

        The targets are forced upon the decoder, one sentence at a time.
        """
        scores = []
        for sentence, target in zip(sentences, targets, strict=True):
            words = self._numbers(self.target, target).to(self.device)
            previous = torch.cat([words[-1:], words[:-1]]).unsqueeze(0)
            inputs = self._inputs([self._numbers(self.source, sentence)])
            source, lengths = (tensor.to(self.device) for tensor in inputs.values())
            with torch.no_grad():
                logits = self._logits(source, lengths, previous)
            scores.append(logits[0].float().log_softmax(dim=1).gather(1, words.unsqueeze(1)).squeeze(1).tolist())
        return scores

    def _logits(self, source: torch.Tensor, lengths: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(source, lengths, previous)[0]
        return logits

    def _numbers(self, dictionary: Any, tokens: Tokens) -> torch.Tensor:
        return torch.tensor([*map(dictionary.index, tokens), dictionary.eos()])

    def _inputs(self, numbers: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        padded = collate_tokens(numbers, self.source.pad(), left_pad=True)
        return {"src_tokens": padded, "src_lengths": torch.tensor([len(sentence) for sentence in numbers])}
