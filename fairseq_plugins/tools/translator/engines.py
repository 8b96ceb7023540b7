"""The parts that all engines share, the engine of CTranslate2, and the choice between engines, without torch.

``fairseq_engine.py`` has the engine of PyTorch.
"""

import logging
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.processor import core_count
from fairseq_plugins.search import GNMT, STOCK
from fairseq_plugins.tools.decoder import Hypothesis
from fairseq_plugins.tools.translator.package import FASTEST, Package, require_unchanged

FAIRSEQ, CTRANSLATE2, AUTO = "fairseq", "ctranslate2", "auto"
BATCH = 4000
"""Default of the maximum number of tokens of a batch."""
CTRANSLATE2_BATCH_ON_CPU, CTRANSLATE2_BATCH_OF_INT8 = 600, 150
"""The default for CTranslate2 on a CPU, whose products are fastest while they stay in the cache."""
PAD = "<blank>"
"""CTranslate2's name for the pad."""
Tokens = Sequence[str]


@dataclass(frozen=True)
class SearchOptions:
    """Settings of a search.

    Args:
        search: values of :data:`~fairseq_plugins.tools.translator.package.SEARCH`.
        batch: maximum number of tokens of a batch, pads included; None lets the engine choose.
        device: ``auto``, ``cpu`` or ``gpu``.
        processes: number of processes that translate at the same time on this machine.
    """

    search: Mapping[str, Any]
    batch: int | None = None
    device: str = "auto"
    processes: int = 1


class CTranslate2Engine:
    """A model of CTranslate2 in ``directory``; a UserError says why it cannot be loaded here.

    ``positions`` is the number of target tokens that the model takes, the end of the sentence included. ``label`` names
    the engine with its precision and device.
    """

    def __init__(self, directory: Path, options: SearchOptions, positions: int) -> None:
        import ctranslate2

        # CTranslate2 warns that float16 becomes float32 on a CPU; the label names the type in use.
        ctranslate2.set_log_level(logging.ERROR)
        self.options, self.positions = options, positions
        gpu = gpu_of(options, ctranslate2.get_cuda_device_count())
        device: dict[str, Any] = {"device": "cpu"} if gpu is None else {"device": "cuda", "device_index": gpu}
        threads = max(1, core_count() // options.processes) if options.processes > 1 else 0
        try:
            self.translator = ctranslate2.Translator(str(directory), **device, intra_threads=threads)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{directory}: CTranslate2 cannot load it: {error}") from None
        self.label = f"{CTRANSLATE2}, {self.translator.compute_type}, {self.translator.device}"

    def search(self, sentences: Sequence[Tokens], nbest: int = 1, alignment: bool = False) -> list[list[Hypothesis]]:
        """Return the best translation of each sentence, none of which is empty, in order."""
        assert (nbest, alignment) == (1, False)  # see Translator.require_details
        search = self.options.search
        usual = BATCH
        if self.translator.device == "cpu":
            of_int8 = self.translator.compute_type.startswith("int8")
            usual = CTRANSLATE2_BATCH_OF_INT8 if of_int8 else CTRANSLATE2_BATCH_ON_CPU
        lengths = [len(sentence) for sentence in sentences]
        requests: dict[int, Any] = {}
        for batch in batches(lengths, self.options.batch or usual):
            # fairseq's limit: by the longest sentence of the batch, its end included, and by the positions.
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
        try:
            results = [requests[place].result() for place in range(len(sentences))]
        except RuntimeError as error:  # for example, CTranslate2 looks for the libraries of CUDA only now
            advice = f"--device cpu or --engine {FAIRSEQ} needs no CUDA of its own"
            raise UserError(f"CTranslate2: {error}; {advice}") from None
        return [[Hypothesis(result.hypotheses[0], result.scores[0])] for result in results]

    def score(self, sentences: Sequence[Tokens], targets: Sequence[Tokens]) -> list[list[float]]:
        """Return the log-probability (natural log) of each token of each target, and of its end."""
        texts = (list(map(list, sentences)), list(map(list, targets)))
        limits = {"max_batch_size": BATCH, "batch_type": "tokens", "max_input_length": 0}
        return [sentence.log_probs for sentence in self.translator.score_batch(*texts, **limits)]


def choose(package: Package, wanted: str, options: SearchOptions) -> str:
    """Return the name of the engine ``wanted`` of a package, by default of the fastest engine that can do this search.

    Raises UserError: there is no such engine, the engine cannot do this search, or its files have changed.
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
    elif options.search["lenpen_form"] == GNMT:
        obstacle = f"CTranslate2 has only fairseq's form of the length penalty (lenpen_form {STOCK})"
    if obstacle and wanted == AUTO:
        return FAIRSEQ
    if obstacle:
        raise UserError(f"engine {wanted}: {obstacle}")
    name = wanted if wanted in exported else exported[0]
    for file, expected in engines[name]["files"].items():
        require_unchanged(package.directory / file, expected)
    return name


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Put sentences of similar length together, the longest first; yields their places in ``lengths``, each once.

    A batch has at most ``most`` tokens, pads included; a longer sentence is a separate batch.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def gpu_of(options: SearchOptions, devices: int) -> int | None:
    """Return which one of ``devices`` GPUs this process uses; None for the CPU."""
    if options.device == "gpu" and not devices:
        raise UserError("--device gpu: this engine finds no GPU; legal here: auto, cpu")
    if options.device == "cpu" or not devices:
        return None
    # () in a process that is no worker, (1) in the first worker.
    identity = multiprocessing.current_process()._identity
    return (identity[0] - 1 if identity else 0) % devices
