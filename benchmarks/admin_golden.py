"""Profile a 100L-100L Admin model and compare it with the profile that the authors ship with admin-torch.

    OMP_NUM_THREADS=2 python benchmarks/admin_golden.py

Base size, Xavier weights, all dropouts 0.1, one synthetic batch whose words follow Zipf's law. Ends with exit code 1
if a number is more than 5 % away from the authors'. Needs 8 GB of memory and one or two minutes on a CPU.
"""

import argparse
import statistics
import sys

import torch
from common import Size, make_batch, make_model, make_task
from torch import nn

from fairseq_plugins.core.residual import Residual

ARCH = "admin_transformer_wmt_en_de_100"
DROPOUTS = ("--dropout=0.1", "--attention-dropout=0.1", "--activation-dropout=0.1")
# admin-torch, example/: the first six omegas and the last one of each stack.
FIRST = {
    "encoder": (1.0, 1.3190, 1.4550, 1.5123, 1.6428, 1.6959),
    "decoder": (1.0, 1.3426, 1.4801, 1.6101, 1.6862, 1.8158),
}
LAST = {"encoder": 8.8360, "decoder": 11.2496}
# Mean growth of omega^2 at the feed-forward sub-layers of the encoder, and of the decoder.
GROWTH = {"encoder": 0.3952, "decoder": 0.397}
TOLERANCE = 0.05


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
    """Rows of the comparison: name, the authors' number, ours."""
    result = []
    for stack in ("encoder", "decoder"):
        named = omegas(getattr(model, stack))
        values = [value for _, value in named]
        for index, expected in enumerate(FIRST[stack]):
            result.append((f"{stack} omega_{index + 1}", expected, values[index]))
        result.append((f"{stack} omega_{len(values)}", LAST[stack], values[-1]))
        result.append((f"{stack} growth at feed-forward", GROWTH[stack], statistics.fmean(growth(named))))
    return result


def growth(named: list[tuple[str, float]]) -> list[float]:
    """Growth of omega^2 over each feed-forward sub-layer that has another above it."""
    pairs = zip(named, named[1:], strict=False)
    return [above**2 - below**2 for (name, below), (_, above) in pairs if name.endswith("ffn_residual")]


def main() -> int:
    """Run and print a Markdown table; 1 if a number is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=16)
    parser.add_argument("--length", type=int, default=30, help="tokens of a sentence on either side")
    parser.add_argument("--vocabulary", type=int, default=32_768)
    args = parser.parse_args()
    size = Size(100, 100, 512, 8, args.vocabulary)
    model = make_model(ARCH, size, make_task(args.vocabulary), DROPOUTS).train()
    with torch.no_grad():
        model(**make_batch(args.sentences, args.length, args.vocabulary)["net_input"], features_only=True)
    print("| | authors | here | off by |\n|---|---|---|---|")
    worst = 0.0
    for name, expected, found in rows(model):
        off = found / expected - 1
        worst = max(worst, abs(off))
        print(f"| {name} | {expected:.4f} | {found:.4f} | {off:+.1%} |")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
