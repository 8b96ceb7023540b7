"""Profile a 100L-100L Admin model and compare it with the profile that the authors ship with admin-torch.

    OMP_NUM_THREADS=2 python benchmarks/admin_golden.py

Base size, Xavier weights, all dropouts 0.1, one synthetic batch whose words follow Zipf's law. Ends with exit code 1
if a number is more than 5 % away from the authors'. Needs 8 GB of memory and one or two minutes on a CPU.
"""

from __future__ import annotations

import argparse
import sys

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

import fairseq_plugins  # noqa: F401  (registers the methods)
from fairseq_plugins.core.residual import Residual

ARCH = "admin_transformer_wmt_en_de_100"
# admin-torch, example/: the first six omegas and the last one of each stack.
FIRST = {
    "encoder": (1.0, 1.3190, 1.4550, 1.5123, 1.6428, 1.6959),
    "decoder": (1.0, 1.3426, 1.4801, 1.6101, 1.6862, 1.8158),
}
LAST = {"encoder": 8.8360, "decoder": 11.2496}
# Mean growth of omega^2 at the feed-forward sub-layers of the encoder, and of the decoder.
GROWTH = {"encoder": 0.3952, "decoder": 0.397}
TOLERANCE = 0.05


def build(arch: str, vocabulary: int, seed: int) -> nn.Module:
    """The model with one dictionary of ``vocabulary`` types, all dropouts 0.1, in training mode."""
    words = Dictionary()
    for number in range(vocabulary - len(words)):
        words.add_symbol(f"w{number}")
    settings = argparse.Namespace(share_all_embeddings=True, dropout=0.1, attention_dropout=0.1, activation_dropout=0.1)
    ARCH_CONFIG_REGISTRY[arch](settings)
    torch.manual_seed(seed)
    task = TranslationTask(TranslationConfig(), words, words)
    return ARCH_MODEL_REGISTRY[arch].build_model(settings, task).train()


def sentences(count: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """``(count, length)`` token numbers by Zipf's law; fairseq's four special tokens are left out."""
    frequencies = 1 / torch.arange(1, vocabulary - 3)
    drawn = torch.multinomial(frequencies, count * length, replacement=True, generator=generator)
    return drawn.view(count, length) + 4


def profile(model: nn.Module, count: int, length: int, vocabulary: int, seed: int) -> None:
    """One training forward, without gradients."""
    generator = torch.Generator().manual_seed(seed)
    source, previous = (sentences(count, length, vocabulary, generator) for _ in range(2))
    source[:, -1] = previous[:, 0] = 2  # </s>
    with torch.no_grad():
        model(source, torch.full((count,), length), previous, features_only=True)


def omegas(stack: nn.Module) -> list[tuple[str, float]]:
    """Name and omega of each residual connection, bottom to top."""
    found = []
    for name, module in stack.named_modules():
        if isinstance(module, Residual):
            scale = module.stream_scale()
            assert scale is not None
            found.append((name, float(scale.detach().mean())))
    return found


def rows(model: nn.Module) -> list[tuple[str, float, float]]:
    """What is compared: name, the authors' number, ours."""
    result = []
    for stack in ("encoder", "decoder"):
        named = omegas(getattr(model, stack))
        values = [value for _, value in named]
        for index, expected in enumerate(FIRST[stack]):
            result.append((f"{stack} omega_{index + 1}", expected, values[index]))
        result.append((f"{stack} omega_{len(values)}", LAST[stack], values[-1]))
        result.append((f"{stack} growth at feed-forward", GROWTH[stack], mean(growth(named))))
    return result


def growth(named: list[tuple[str, float]]) -> list[float]:
    """Growth of omega^2 over each feed-forward sub-layer that has another above it."""
    pairs: dict[str, float] = {}
    for (name, below), (_, above) in zip(named, named[1:], strict=False):
        if name.endswith("ffn_residual"):
            pairs[name] = above**2 - below**2
    return list(pairs.values())


def mean(values: list[float]) -> float:
    """Arithmetic mean."""
    return sum(values) / len(values)


def main() -> int:
    """Run and print a Markdown table; 1 if a number is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=16)
    parser.add_argument("--length", type=int, default=30, help="tokens of a sentence on either side")
    parser.add_argument("--vocabulary", type=int, default=32_768)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model = build(ARCH, args.vocabulary, args.seed)
    profile(model, args.sentences, args.length, args.vocabulary, args.seed)
    print("| | authors | here | off by |\n|---|---|---|---|")
    worst = 0.0
    for name, expected, found in rows(model):
        off = found / expected - 1
        worst = max(worst, abs(off))
        print(f"| {name} | {expected:.4f} | {found:.4f} | {off:+.1%} |")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
