"""Does every method train at 60-12 and 100-100 layers? Small width, some hundred updates, the same recipe for all.

German to English sentences of the embedded corpus, one symbol a word; Adam with fairseq's inverse square root schedule;
where a method's paper asks for another schedule, it gets that one (``RECIPES``). A row of the result is a line of JSON,
so that an interrupted run goes on and several processes can share the work. Run it from the repository's root:
``python benchmarks/deep_stability.py --help``.
"""

import argparse
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from common import METHODS, STOCK, Size, machine, make_model
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.optim.adam import Adam
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugins.tools.demo.corpus import pairs

RECIPES: dict[str, dict[str, Any]] = {
    "t_fixup": {"warmup": 0, "peak": 5e-4, "why": "no warm-up, learning rate 5e-4: its paper's recipe"},
    "fixup": {"peak": 5e-4, "why": "learning rate 5e-4: its released recipe"},
    "b2t_without_ln": {"width": 128, "why": "width 128: beta = d^-0.2 holds the stream in wide layers only"},
    "branch_norm": {
        "flags": ["--branch-norm-updates", "50"],
        "why": "branches at full size after 50 updates, not 4,000: as long as the warm-up",
    },
}
"""Where a paper's own recipe departs from the common one."""
SMOOTHING = 0.1
VOCABULARY = 500
"""Most frequent words of both languages; the others are unknown."""
LAST = 20
"""Updates at the end over which the loss is averaged."""


def corpus(sentences: int) -> tuple[Dictionary, list[tuple[torch.Tensor, torch.Tensor]]]:
    """A joined dictionary, and the sentence pairs as symbols with ``</s>``."""
    text = [(pair.german.split(), pair.english.split()) for pair in itertools.islice(pairs(seed=1), sentences)]
    words = Dictionary()
    for word, _ in Counter(word for pair in text for side in pair for word in side).most_common(VOCABULARY):
        words.add_symbol(word)
    return words, [tuple(words.encode_line(" ".join(side), add_if_not_exist=False).long() for side in p) for p in text]


def batches(data: Sequence[tuple[torch.Tensor, torch.Tensor]], tokens: int, pad: int, end: int) -> Iterator[dict]:
    """Endless batches of about ``tokens`` target tokens, in the order of the corpus."""
    batch: list[tuple[torch.Tensor, torch.Tensor]] = []
    while True:
        for pair in data:
            batch.append(pair)
            if sum(len(target) for _, target in batch) >= tokens:
                sources, targets = ([pair[side] for pair in batch] for side in (0, 1))
                yield {
                    "src_tokens": collate_tokens(sources, pad, end, left_pad=True),
                    "src_lengths": torch.tensor([len(source) for source in sources]),
                    "prev_output_tokens": collate_tokens(targets, pad, end, move_eos_to_beginning=True),
                    "target": collate_tokens(targets, pad, end),
                }
                batch = []


def unigram_entropy(data: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Nats a target token that a model needs which knows nothing but how frequent the words are."""
    counts = torch.bincount(torch.cat([target for _, target in data])).double()
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())


def learning_rate(update: int, peak: float, warmup: int) -> float:
    """Fairseq's inverse square root schedule; without warm-up T-Fixup's, which decays from 4,000 updates on."""
    if warmup == 0:
        return peak * math.sqrt(4000 / (4000 + update))
    return peak * min(update / warmup, math.sqrt(warmup / update))


def norm_of_gradient(model: torch.nn.Module) -> float:
    """Euclidean norm over all parameters."""
    return float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())


def train(method: str, depth: tuple[int, int], args: argparse.Namespace) -> dict[str, Any]:
    """One run; a dictionary for one row."""
    words, data = corpus(args.corpus)
    recipe = {
        "peak": args.peak,
        "warmup": args.warmup,
        "width": args.width,
        "flags": [],
        "why": "",
        **RECIPES.get(method, {}),
    }
    task = TranslationTask(TranslationConfig(), words, words)
    arch = method if method == STOCK else f"{method}_transformer"
    size = Size(*depth, recipe["width"], args.heads, len(words))
    model = make_model(arch, size, task, ["--dropout", "0.1", *recipe["flags"]]).train()
    optimizer = Adam(model.parameters(), lr=recipe["peak"], betas=(0.9, 0.98))
    losses: list[float] = []
    norms: list[float] = []
    began = time.process_time()
    stream = batches(data, args.tokens, words.pad(), words.eos())
    torch.manual_seed(args.seed)
    for update in range(1, args.updates + 1):
        sample = next(stream)
        target = sample.pop("target")
        model.set_num_updates(update - 1)  # fairseq's task does so
        optimizer.param_groups[0]["lr"] = learning_rate(update, recipe["peak"], recipe["warmup"])
        log_probs = torch.log_softmax(model(**sample)[0].float(), dim=-1)
        loss, nll = label_smoothed_nll_loss(
            log_probs.flatten(0, 1), target.view(-1, 1), SMOOTHING, ignore_index=words.pad()
        )
        count = int(target.ne(words.pad()).sum())
        (loss / count).backward()
        losses.append(float(nll.detach()) / count)
        norms.append(norm_of_gradient(model))
        if not (math.isfinite(losses[-1]) and math.isfinite(norms[-1])):
            break
        optimizer.step()
        optimizer.zero_grad()
    tail = losses[-LAST:]
    return {
        "method": method,
        "depth": list(depth),
        "width": recipe["width"],
        "updates": len(losses),
        "planned": args.updates,
        "first": losses[0],
        "last": sum(tail) / len(tail),
        "worst": max(losses),
        "gradient": [norms[0], norms[-1]],
        "unigram": unigram_entropy(data),
        "recipe": recipe["why"],
        "seconds": (time.process_time() - began) / len(losses),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def verdict(row: dict[str, Any]) -> str:
    """``learns`` if the loss ended below what the frequencies of the words alone give."""
    if row["updates"] < row["planned"] or not math.isfinite(row["last"]):
        return f"not finite at update {row['updates']}"
    if row["last"] < row["unigram"] - 0.1:
        return "learns"
    if row["last"] < row["unigram"] + 0.2:
        return "falls to the word frequencies"
    return "falls, still above the word frequencies" if row["last"] < 0.9 * row["first"] else "diverges"


def report(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown, one table for each depth."""
    written = []
    for depth in sorted({tuple(row["depth"]) for row in rows}):
        lines = [
            f"### {depth[0]}-{depth[1]} layers\n",
            "| method | updates | loss, first | last | worst | gradient norm, first and last | verdict | own recipe |",
            "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |",
        ]
        order = {name: number for number, name in enumerate((STOCK, *METHODS))}
        for row in sorted((r for r in rows if tuple(r["depth"]) == depth), key=lambda r: order.get(r["method"], 99)):
            numbers = " | ".join(f"{row[name]:.4g}" for name in ("first", "last", "worst"))
            norms = ", ".join(f"{norm:.2g}" for norm in row["gradient"])
            cells = (f"`{row['method']}`", str(row["updates"]), numbers, norms, verdict(row), row["recipe"])
            lines.append(f"| {' | '.join(cells)} |")
        written.append("\n".join(lines))
    return "\n\n".join(written)


def main() -> None:
    """Run what is asked for and not there yet, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join((STOCK, *METHODS)), help="default: stock and all methods")
    parser.add_argument("--depths", default="60-12,100-100", help="encoder and decoder layers")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=128, help="target tokens an update")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--warmup", type=int, default=50, help="updates")
    parser.add_argument("--corpus", type=int, default=4000, help="sentence pairs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; rows that are there are not run again")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for text in args.depths.split(","):
        depth = tuple(int(layers) for layers in text.split("-"))
        for method in args.methods.split(","):
            done = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
            if any(row["method"] == method and tuple(row["depth"]) == depth for row in done):
                continue
            row = train(method, depth, args)
            with args.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(
                f"{method} {text}: {verdict(row)}, {row['first']:.2f} to {row['last']:.2f}, "
                f"{row['seconds']:.2f} s/update",
                flush=True,
            )
    rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    print(f"\n{machine('cpu')}; unigram entropy {rows[0]['unigram']:.2f} nats a token\n\n{report(rows)}")


if __name__ == "__main__":
    main()
