"""The engines that search for translations: the package's own model in PyTorch, or a model of CTranslate2."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import torch
from fairseq import utils
from fairseq.data.data_utils import collate_tokens
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.processor import core_count
from fairseq_plugins.search.settings import GNMT, STOCK, GenerationConfigWithForm
from fairseq_plugins.translator.package import FASTEST, Package, require_unchanged

FAIRSEQ, CTRANSLATE2, AUTO = "fairseq", "ctranslate2", "auto"
DEVICES = ("auto", "cpu", "gpu")
BATCH = 4000
"""The default of the most tokens of a batch."""
CTRANSLATE2_BATCH_ON_CPU, CTRANSLATE2_BATCH_OF_INT8 = 600, 150
"""The same for CTranslate2 on a CPU, whose products are fastest while they stay in the cache."""
PAD = "<blank>"
"""CTranslate2's name for the pad."""
Tokens = Sequence[str]


class Hypothesis(NamedTuple):
    """A translation in tokens.

    Attributes:
        tokens: without the end of the sentence.
        score: log-probability (natural log) with the length penalty.
        token_scores: log-probability (natural log) of each token and of the end of the sentence; CTranslate2 has none.
        alignment: places, counted from 0, of each token and of the source token that it attends to most, the source
            first; empty unless it was asked for.
    """

    tokens: list[str]
    score: float
    token_scores: Sequence[float] = ()
    alignment: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class How:
    """How sentences are translated.

    Args:
        search: values of :data:`~fairseq_plugins.translator.package.SEARCH`.
        batch: most tokens of a batch, pads among them; None lets the engine choose.
        device: one of :data:`DEVICES`.
        processes: how many do this at the same time on this machine.
    """

    search: Mapping[str, Any]
    batch: int | None = None
    device: str = "auto"
    processes: int = 1


class FairseqEngine:
    """The model of a package, in evaluation mode, by fairseq's search as ``FairseqTask.build_generator`` makes it."""

    def __init__(self, model: Any, dictionaries: Any, how: How) -> None:
        self.source, self.target = dictionaries.source_dictionary, dictionaries.target_dictionary
        gpu = _gpu(how, torch.cuda.device_count())
        self.device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
        self.model, self.how = model.to(self.device), how
        # A search sets the model up for its steps.
        self._lock = RLock()
        if how.processes > 1:
            torch.set_num_threads(max(1, core_count() // how.processes))
        self.task = TranslationTask(TranslationConfig(), self.source, self.target)
        self.generators: dict[bool, Any] = {}
        self.label = f"{FAIRSEQ}, float32, {self.device.type}"

    def search(self, sentences: Sequence[Tokens], nbest: int = 1, alignment: bool = False) -> list[list[Hypothesis]]:
        """Return the best translations of each sentence, none of which is empty, in order; threads take turns."""
        numbers = [self._numbers(self.source, sentence) for sentence in sentences]
        hypotheses: dict[int, list[Hypothesis]] = {}
        with self._lock:
            generator = self._generator(alignment)
            for batch in batches([len(sentence) for sentence in numbers], self.how.batch or BATCH):
                sample = {"id": torch.tensor(batch), "net_input": self._inputs([numbers[index] for index in batch])}
                sample = utils.apply_to_sample(lambda tensor: tensor.to(self.device), sample)
                answers = self.task.inference_step(generator, [self.model], sample)
                for index, answer in zip(batch, answers, strict=True):
                    hypotheses[index] = [self._hypothesis(result) for result in answer[:nbest]]
        return [hypotheses[index] for index in range(len(sentences))]

    def _generator(self, alignment: bool) -> Any:
        """Return fairseq's search; with ``alignment`` the one of ``--print-alignment``, which keeps the attention."""
        if alignment not in self.generators:
            end = torch.tensor([[self.source.eos()]], device=self.device)
            with torch.no_grad():
                if alignment and self.model(end, torch.ones_like(end[0]), end)[1]["attn"][0] is None:
                    raise UserError("--alignment: this model has no cross-attention, from which an alignment is read")
            settings = GenerationConfigWithForm(**self.how.search, print_alignment="hard" if alignment else None)
            self.generators[alignment] = self.task.build_generator([self.model], OmegaConf.structured(settings))
        return self.generators[alignment]

    def _hypothesis(self, result: Mapping[str, Any]) -> Hypothesis:
        tokens = [self.target[number] for number in result["tokens"].tolist() if number != self.target.eos()]
        scores, alignment = result["positional_scores"].tolist(), list(map(tuple, result["alignment"]))
        return Hypothesis(tokens, float(result["score"]), scores, alignment)

    def score(self, sentences: Sequence[Tokens], targets: Sequence[Tokens]) -> list[list[float]]:
        """Return the log-probability (natural log) of each token of each target, and of its end.

        The targets are forced upon the decoder, one sentence at a time.
        """
        scores = []
        for sentence, target in zip(sentences, targets, strict=True):
            words = self._numbers(self.target, target).to(self.device)
            previous = torch.cat([words[-1:], words[:-1]]).unsqueeze(0)
            inputs = self._inputs([self._numbers(self.source, sentence)])
            with torch.no_grad():
                logits = self.model(*(tensor.to(self.device) for tensor in inputs.values()), previous)[0]
            scores.append(logits[0].float().log_softmax(dim=1).gather(1, words.unsqueeze(1)).squeeze(1).tolist())
        return scores

    def _numbers(self, dictionary: Any, tokens: Tokens) -> torch.Tensor:
        return torch.tensor([*map(dictionary.index, tokens), dictionary.eos()])

    def _inputs(self, numbers: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        padded = collate_tokens(numbers, self.source.pad(), left_pad=True)
        return {"src_tokens": padded, "src_lengths": torch.tensor([len(sentence) for sentence in numbers])}


class CTranslate2Engine:
    """A model of CTranslate2.

    Args:
        directory: the model.
        how: the search.
        positions: target tokens that the model takes, the end of the sentence among them.

    Raises:
        UserError: it cannot be loaded here.
    """

    def __init__(self, directory: Path, how: How, positions: int) -> None:
        import ctranslate2

        # It says on standard error that float16 becomes float32 on a CPU; the label says what is used.
        ctranslate2.set_log_level(logging.ERROR)
        self.how, self.positions = how, positions
        gpu = _gpu(how, ctranslate2.get_cuda_device_count())
        device: dict[str, Any] = {"device": "cpu"} if gpu is None else {"device": "cuda", "device_index": gpu}
        threads = max(1, core_count() // how.processes) if how.processes > 1 else 0
        try:
            self.translator = ctranslate2.Translator(str(directory), **device, intra_threads=threads)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{directory}: CTranslate2 cannot load it: {error}") from None
        self.label = f"{CTRANSLATE2}, {self.translator.compute_type}, {self.translator.device}"

    def search(self, sentences: Sequence[Tokens], nbest: int = 1, alignment: bool = False) -> list[list[Hypothesis]]:
        """Return the best translation of each sentence, none of which is empty, in order."""
        assert (nbest, alignment) == (1, False)  # see Translator.require_details
        search = self.how.search
        usual = BATCH
        if self.translator.device == "cpu":
            of_int8 = self.translator.compute_type.startswith("int8")
            usual = CTRANSLATE2_BATCH_OF_INT8 if of_int8 else CTRANSLATE2_BATCH_ON_CPU
        lengths = [len(sentence) for sentence in sentences]
        requests: dict[int, Any] = {}
        for batch in batches(lengths, self.how.batch or usual):
            # As fairseq has it: of the longest sentence of the batch, its end included, and of the positions.
            longest = int(search["max_len_a"] * (lengths[batch[0]] + 1) + search["max_len_b"])
            longest = min(longest, self.positions - 1)
            answers = self.translator.translate_batch(
                [list(sentences[place]) for place in batch],
                max_input_length=0,
                asynchronous=True,
                beam_size=search["beam"],
                length_penalty=search["lenpen"],
                max_decoding_length=longest,
                min_decoding_length=min(search["min_len"], longest),
                no_repeat_ngram_size=search["no_repeat_ngram_size"],
                # fairseq's search excludes the pad as well.
                suppress_sequences=[[PAD]],
                return_scores=True,
            )
            requests.update(zip(batch, answers, strict=True))
        results = [requests[place].result() for place in range(len(sentences))]
        return [[Hypothesis(result.hypotheses[0], result.scores[0])] for result in results]

    def score(self, sentences: Sequence[Tokens], targets: Sequence[Tokens]) -> list[list[float]]:
        """Return the log-probability (natural log) of each token of each target, and of its end."""
        source, target = [list(sentence) for sentence in sentences], [list(sentence) for sentence in targets]
        scored = self.translator.score_batch(
            source, target, max_batch_size=BATCH, batch_type="tokens", max_input_length=0
        )
        return [sentence.log_probs for sentence in scored]


Engine = FairseqEngine | CTranslate2Engine


def choose(package: Package, wanted: str, how: How) -> str:
    """Return the name of the engine of a package that is called ``wanted``, or of the fastest that can do this search.

    Raises:
        UserError: there is no such engine, it cannot do this search, or its files are not those of the export.
    """
    engines = package.content["engines"]
    exported = [name for name in engines if (package.directory / name).is_dir()]
    exported.sort(key=lambda name: FASTEST.index(engines[name]["quantization"]))
    legal = [AUTO, FAIRSEQ, *([CTRANSLATE2] if exported else []), *exported]
    if wanted not in legal:
        raise UserError(f"{package.directory}: {unknown_name('engine', str(wanted), legal)}")
    if wanted == FAIRSEQ or not exported:
        return FAIRSEQ
    obstacle = ""
    if find_spec("ctranslate2") is None:
        obstacle = "CTranslate2 is not installed (pip install 'fairseq-deep[export]')"
    elif how.search["lenpen_form"] == GNMT:
        obstacle = f"CTranslate2 has only fairseq's form of the length penalty (lenpen_form {STOCK})"
    if obstacle and wanted == AUTO:
        return FAIRSEQ
    if obstacle:
        raise UserError(f"engine {wanted}: {obstacle}")
    name = wanted if wanted in exported else exported[0]
    for file, expected in engines[name]["files"].items():
        require_unchanged(package.directory / file, expected)
    return name


def make_engine(package: Package, name: str, how: How) -> Engine:
    """Make the engine of this name, of :func:`choose`."""
    if name == FAIRSEQ:
        return FairseqEngine(package.model(), package.dictionaries(), how)
    return CTranslate2Engine(package.directory / name, how, package.content["positions"][1])


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Put sentences of like length together, the longest first; yields their places in ``lengths``, each once.

    A batch has at most ``most`` tokens, pads among them; a longer sentence is a batch of its own.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _gpu(how: How, devices: int) -> int | None:
    """Return which of so many GPUs this process uses; None for the CPU."""
    if how.device == "gpu" and not devices:
        raise UserError("--device gpu: this engine finds no GPU; legal here: auto, cpu")
    if how.device == "cpu" or not devices:
        return None
    # () in a process that is no worker, (1) in the first worker.
    identity = multiprocessing.current_process()._identity
    return (identity[0] - 1 if identity else 0) % devices
