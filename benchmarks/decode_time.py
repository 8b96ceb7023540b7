"""Beam search with every method against stock fairseq, interleaved in one process, and its peak memory.

Every search is made to run the same number of steps, so that untrained models can be compared. Peak memory is
taken in a process of its own for each method. Run it from the repository's root:
``python benchmarks/decode_time.py --help``.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import torch
from common import STOCK, Size, add_model_options, interleaved, machine, make_model, make_task, table, zipf_tokens
from fairseq.sequence_generator import SequenceGenerator

from fairseq_plugins.search.beam import LeanSearch
from fairseq_plugins.search.step_graphs import StepGraphs

SEARCHES = ("fairseq", "lean", "graphs")
"""fairseq's search, the lean one, and that with CUDA graphs."""


def make_search(run: str, args: argparse.Namespace) -> Callable[[], None]:
    """A closure that translates one batch; ``run`` is an architecture, a space and a search of :data:`SEARCHES`."""
    arch, search_name = run.split()
    assert search_name in SEARCHES, SEARCHES
    task = make_task(args.vocabulary)
    size = Size(args.layers, args.layers, args.width, max(1, args.width // 64), args.vocabulary)
    model = make_model(arch, size, task, args.model_options if arch != STOCK else []).to(args.device)
    if args.half:
        model = model.half()
    # fairseq-generate does this with a model before it searches.
    generation = argparse.Namespace(beam=args.beam, no_beamable_mm=False, print_alignment=None)
    model.prepare_for_inference_(argparse.Namespace(generation=generation))
    generator = (SequenceGenerator if search_name == "fairseq" else LeanSearch)(
        [model], task.target_dictionary, beam_size=args.beam, max_len_a=0, max_len_b=args.length, min_len=args.length
    ).to(args.device)
    tokens = zipf_tokens(args.sentences, args.length, args.vocabulary, seed=1)
    tokens[:, -1] = task.source_dictionary.eos()
    tokens = tokens.to(args.device)
    lengths = torch.full((args.sentences,), args.length, device=args.device)
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}

    @torch.no_grad()
    def search() -> None:
        generator.generate([model], sample)

    if search_name == "graphs":
        generator.graphs = [StepGraphs()]
        for _ in range(2):  # in the first search the memory of the caches grows, in the second every room is recorded
            search()
    return search


def peak_on_gpu(search: Callable[[], None]) -> float:
    """The MiB by which a search raises the peak memory of the GPU."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    search()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def peak_memory(run: str, args: argparse.Namespace, answers: multiprocessing.Queue) -> None:
    """Put into ``answers`` by how many MiB one search raises the peak memory of a CPU above the loaded model's."""
    torch.set_num_threads(args.threads)
    search = make_search(run, args)
    # Linux: forget the peak that building the model left, so that the next peak is the search's.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    search()
    answers.put((resident("VmHWM") - before) / 2**10)


def resident(field: str) -> int:
    """Resident memory of this process now (``VmRSS``) or at its peak (``VmHWM``), in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field + ":")))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="post_ln,admin,b2t,dsinit_matt,rezero")
    parser.add_argument(
        "--searches", default="fairseq,lean", help=f"of each method, from {','.join(SEARCHES)}; default: %(default)s"
    )
    parser.add_argument("--layers", type=int, default=12, help="on each side")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--sentences", type=int, default=16)
    parser.add_argument("--length", type=int, default=25, help="tokens a sentence, on each side")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-memory", action="store_true", help="leave the table of memory out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    add_model_options(parser)
    parser.add_argument("--half", action="store_true", help="float16 weights")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    stock = f"{STOCK} fairseq"
    archs = [STOCK] + [f"{name}_transformer" for name in args.methods.split(",") if name]
    runs = list(dict.fromkeys([stock] + [f"{arch} {search}" for arch in archs for search in args.searches.split(",")]))
    searches = {run: make_search(run, args) for run in runs}
    seconds = interleaved(searches, args.rounds, args.device)
    print(f"{machine(args.device)}; {args.layers}-{args.layers} layers, width {args.width}, beam {args.beam}, ", end="")
    print(f"{args.sentences} sentences, {args.length} steps, vocabulary {args.vocabulary}; {args.rounds} rounds\n")
    print(table(seconds, stock))
    if args.no_memory:
        return
    print("\n| arch and search | peak memory of one search above the loaded model, MiB |\n|---|---|")
    context = multiprocessing.get_context("spawn")
    for run in runs:
        if args.device == "cuda":
            print(f"| {run} | {peak_on_gpu(searches[run]):.0f} |")
            continue
        answers: multiprocessing.Queue = context.Queue()
        process = context.Process(target=peak_memory, args=(run, args, answers))
        process.start()
        print(f"| {run} | {answers.get():.0f} |")
        process.join()


if __name__ == "__main__":
    main()
