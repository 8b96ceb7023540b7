"""Parts that the benchmarks share: models without data on disk, interleaved timing, the machine's description."""

import argparse
import logging
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.adam import Adam
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer

import fairseq_plugins  # noqa: F401  (registers the architectures)
from fairseq_plugins.core.method import METHODS as registered
from fairseq_plugins.training.fast_adam import Adam as ForeachAdam
from fairseq_plugins.training.fast_adam import FusedAdam
from fairseq_plugins.training.muon import FairseqMuon, MuonConfig
from fairseq_plugins.training.param_groups import mark_matrices

STOCK = "transformer"
METHODS = tuple(registered)


ADAMS = {"adam": Adam, "foreach_adam": ForeachAdam, "fused_adam": FusedAdam}
OPTIMIZERS = (*ADAMS, "muon")
"""fairseq's names of optimizers; the first is stock's."""
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Size(NamedTuple):
    """Size of a benchmarked model; feed-forward width is four times the width."""

    encoder_layers: int
    decoder_layers: int
    width: int
    heads: int
    vocabulary: int


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of the models; stock's has none of them."""
    parser.add_argument(
        "--model-options", type=str.split, default=[], metavar="'--NAME VALUE ...'", help="of the methods"
    )


def step_flags(description: str | None) -> argparse.ArgumentParser:
    """Flags of the benchmarks that make training steps."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--layers", type=int, default=6, help="on each side")
    parser.add_argument("--decoder-layers", type=int, help="default: as --layers")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--sentences", type=int, default=16)
    parser.add_argument("--length", type=int, default=25, help="tokens a sentence, on each side")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=sorted(PRECISIONS), default="fp32")
    parser.add_argument("--stock-precision", choices=sorted(PRECISIONS), help="default: as --precision")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam", help="of the methods; stock's is adam")
    add_model_options(parser)
    parser.add_argument("--amp", action="store_true", help="the methods, not stock, as under --amp --bf16")
    return parser


def model_size(args: argparse.Namespace) -> Size:
    """The size that the flags describe; heads are 64 wide."""
    decoder = args.decoder_layers or args.layers
    return Size(args.layers, decoder, args.width, max(1, args.width // 64), args.vocabulary)


def make_task(vocabulary: int) -> TranslationTask:
    """A translation task over a made-up dictionary that both languages share."""
    dictionary = Dictionary()
    for index in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def configured(arch: str, size: Size, flags: Sequence[str] = ()):
    """Fairseq's configuration of a model of ``arch`` with tied tables, and of its training."""
    sizes = {"embed-dim": size.width, "ffn-embed-dim": 4 * size.width, "attention-heads": size.heads}
    argv = ["unused", "--arch", arch, "--share-all-embeddings", *flags]
    argv += ["--encoder-layers", str(size.encoder_layers), "--decoder-layers", str(size.decoder_layers)]
    for stack in ("encoder", "decoder"):
        for name, value in sizes.items():
            argv += [f"--{stack}-{name}", str(value)]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), argv))


def make_model(arch: str, size: Size, task: TranslationTask, flags: Sequence[str] = ()):
    """A model of ``arch`` on the CPU, with tied tables, seed 1."""
    torch.manual_seed(1)
    for name in ("hydra", "fairseq_plugins"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():  # fairseq calls Hydra as its old versions asked for
        warnings.simplefilter("ignore", UserWarning)
        return task.build_model(configured(arch, size, flags).model)


def make_trainer(arch: str, size: Size, flags: Sequence[str]) -> Trainer:
    """Fairseq's trainer of such a model, with Adam."""
    config = configured(arch, size, ["--optimizer", "adam", "--lr", "1e-5", *flags])
    task = make_task(size.vocabulary)
    torch.manual_seed(1)
    return Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))


def make_optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """One of :data:`OPTIMIZERS` for the weights of a model."""
    if name == "muon":
        mark_matrices(model)
        return FairseqMuon(MuonConfig(lr=[1e-6], adam_betas="(0.9, 0.98)"), model.parameters()).optimizer
    return ADAMS[name](model.parameters(), lr=1e-6, betas=(0.9, 0.98), eps=1e-8)


def zipf_tokens(rows: int, columns: int, vocabulary: int, seed: int) -> torch.Tensor:
    """Token numbers ``(rows, columns)`` with the frequencies of natural text, special symbols left out."""
    special = 4
    ranks = torch.arange(1, vocabulary - special + 1, dtype=torch.float)
    generator = torch.Generator().manual_seed(seed)
    draws = torch.multinomial(1 / ranks, rows * columns, replacement=True, generator=generator)
    return (draws + special).view(rows, columns)


def make_batch(sentences: int, length: int, vocabulary: int, device: str = "cpu") -> dict[str, Any]:
    """The batch that fairseq's tasks make of sentences of one length."""
    source, target = (zipf_tokens(sentences, length, vocabulary, seed).to(device) for seed in (1, 2))
    inputs = {"src_tokens": source, "src_lengths": torch.full((sentences,), length, device=device)}
    inputs["prev_output_tokens"] = target.roll(1, 1)
    return {"net_input": inputs, "target": target, "ntokens": target.numel(), "nsentences": sentences}


def interleaved(runs: dict[str, Callable[[], None]], rounds: int, device: str) -> dict[str, list[dict[str, float]]]:
    """Time every run once a round, in turn, after one warm-up round: wall and processor seconds of each."""
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for round_number in range(rounds + 1):
        for name, run in runs.items():
            if device == "cuda":
                torch.cuda.synchronize()
            wall, processor = time.perf_counter(), time.process_time()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            if round_number:
                seconds[name].append({"wall": time.perf_counter() - wall, "processor": time.process_time() - processor})
    return seconds


def ratios(seconds: dict[str, list[dict[str, float]]], clock: str, base: str) -> dict[str, list[float]]:
    """Time of every run divided by that of ``base`` in the same round, sorted."""
    return {
        name: sorted(one[clock] / other[clock] for one, other in zip(times, seconds[base], strict=True))
        for name, times in seconds.items()
    }


def with_quartiles(found: Sequence[float], digits: int = 3) -> str:
    """The median of sorted numbers, and their quartiles in brackets."""
    low, high = found[len(found) // 4], found[(3 * len(found)) // 4]
    return f"{statistics.median(found):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def table(seconds: dict[str, list[dict[str, float]]], base: str = STOCK) -> str:
    """Markdown: median ratio to ``base`` with quartiles, by wall clock and by processor time."""
    lines = ["| arch | wall ratio (quartiles) | processor ratio (quartiles) | median s |", "|---|---|---|---|"]
    wall, processor = ratios(seconds, "wall", base), ratios(seconds, "processor", base)
    for name, times in seconds.items():
        middle = statistics.median(t["wall"] for t in times)
        lines.append(f"| {name} | {with_quartiles(wall[name])} | {with_quartiles(processor[name])} | {middle:.3f} |")
    return "\n".join(lines)


def machine(device: str) -> str:
    """One line on what this ran on."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    with_model = [line for line in open("/proc/cpuinfo") if line.startswith("model name")]
    name = with_model[0].split(":", 1)[1].strip() if with_model else platform.processor()
    return f"{name}, {torch.get_num_threads()} thread(s), torch {torch.__version__}, Python {platform.python_version()}"
