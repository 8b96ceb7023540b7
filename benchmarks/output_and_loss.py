"""Chunked loss against fairseq's criterion, interleaved in one process, and their memory.

A step is the output layer, the criterion and their backward pass, for one batch of decoder outputs. Peak memory counts
the tensors that the step makes, each storage once, from when an operation returns it until it is freed; what an
operation needs inside is not seen. Run it from the repository's root: ``python benchmarks/output_and_loss.py --help``.
"""

import argparse
import weakref
from collections.abc import Callable
from typing import Any

import torch
from common import PRECISIONS, interleaved, machine, make_task, table, zipf_tokens
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

STOCK = "label_smoothed_cross_entropy"
CHUNKED = "chunked_label_smoothed_cross_entropy"


class Decoder(TransformerDecoderBase):
    """The output layer of a decoder, without layers below it."""

    def __init__(self, width: int, vocabulary: int) -> None:
        nn.Module.__init__(self)
        self.adaptive_softmax = None
        self.output_projection = nn.Linear(width, vocabulary, bias=False)

    def forward(self, features: Tensor) -> tuple[Tensor, None]:
        """Return the logits of ``features`` (B, T, C), or what a criterion has put in their place."""
        return self.output_layer(features), None


class Model(nn.Module):
    """Has what the criteria call."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.decoder = Decoder(width, vocabulary)

    def forward(self, features: Tensor) -> tuple[Tensor, None]:
        """Return the decoder's result."""
        return self.decoder(features)

    def get_normalized_probs(self, net_output: Any, log_probs: bool) -> Tensor:
        """Return fairseq's log-softmax in float32."""
        return torch.log_softmax(net_output[0], dim=-1, dtype=torch.float32)

    def get_targets(self, sample: Any, net_output: Any) -> Tensor:
        """Return the target (B, T)."""
        return sample["target"]


class Peak(TorchDispatchMode):
    """Counts the bytes of the storages that operations make, and their maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def _freed(self, address: int, size: int) -> None:
        self.known.discard(address)
        self.now -= size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count its results."""
        given = {one.untyped_storage()._cdata for one in args if isinstance(one, Tensor)}
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, Tensor):
                storage = one.untyped_storage()
                address, size = storage._cdata, storage.nbytes()
                if address not in self.known and address not in given:
                    self.known.add(address)
                    weakref.finalize(storage, self._freed, address, size)
                    self.now += size
                    self.peak = max(self.peak, self.now)
        return result


def make_step(name: str, args: argparse.Namespace, task: Any) -> Callable[[], None]:
    """A closure that computes loss and gradients once."""
    torch.manual_seed(1)
    dtype = PRECISIONS[args.precision]
    model = Model(args.width, args.vocabulary).to(device=args.device, dtype=dtype)
    criterion = CRITERION_REGISTRY[name](task, sentence_avg=False, label_smoothing=0.1)
    features = torch.randn(args.sentences, args.length, args.width, dtype=dtype, device=args.device).requires_grad_()
    target = zipf_tokens(args.sentences, args.length, args.vocabulary, seed=2).to(args.device)
    sample = {"net_input": {"features": features}, "target": target, "ntokens": target.numel()}

    def step() -> None:
        loss, size, _ = criterion(model, sample)
        (loss / size).backward()
        features.grad = None
        model.zero_grad()

    return step


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--length", type=int, default=32, help="tokens a sentence")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=sorted(PRECISIONS), default="fp32")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    task = make_task(args.vocabulary)
    steps = {name: make_step(name, args, task) for name in (STOCK, CHUNKED)}
    print(f"{machine(args.device)}; {args.precision}; width {args.width}, vocabulary {args.vocabulary}, ", end="")
    print(f"{args.sentences * args.length} tokens; {args.rounds} rounds\n")
    peaks = {}
    for name, step in steps.items():
        with Peak() as seen:
            step()
        peaks[name] = seen.peak
    print("| criterion | peak, MiB | to stock |\n|---|---:|---:|")
    for name, peak in peaks.items():
        print(f"| {name} | {peak / 2**20:.0f} | {peak / peaks[STOCK]:.2f} |")
    print("\n" + table(interleaved(steps, args.rounds, args.device), STOCK).replace("| arch", "| criterion", 1))


if __name__ == "__main__":
    main()
