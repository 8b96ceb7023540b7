"""Where the time of a training step goes: every method's by kind of operation, in percent of stock fairseq's step.

The kinds are those of torch's profiler, each operation with its own time and without what it calls. One table for all
methods: what a method costs beyond stock stands in the column that its row is larger in. Steps of all methods of a
group and of stock are made in turn, and each is compared with stock's of the same round. Run it from the repository's
root: ``python benchmarks/step_profile.py --help``; the flags are those of ``step_time.py``.
"""

import statistics

import torch
from common import METHODS, STOCK, machine, make_task, model_size, step_flags
from kinds import KINDS, OPTIMIZER, REST, kinds_of
from step_time import make_step


def main() -> None:
    """Print the table."""
    parser = step_flags(__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--together", type=int, default=6, help="models in memory at a time, beside stock's")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    task, size = make_task(args.vocabulary), model_size(args)
    columns = [*KINDS, "loss", OPTIMIZER, REST]
    print(f"{machine('cpu')}; {size.encoder_layers}-{size.decoder_layers} layers, width {args.width}, ", end="")
    print(f"{args.sentences} x {args.length} tokens; methods with {args.optimizer}; ", end="")
    print(f"in percent of stock's step of the same round, medians of {args.rounds} rounds\n")
    print(f"| arch | step | {' | '.join(columns)} |")
    print("|---|" + "---:|" * (len(columns) + 1))
    archs = [f"{name}_transformer" for name in args.methods.split(",")]
    for start in range(0, len(archs), args.together):
        group = [STOCK, *archs[start : start + args.together]]
        steps = {arch: make_step(arch, args, task, size)[0] for arch in group}
        shares: dict[str, list[dict[str, float]]] = {arch: [] for arch in group}
        for round_number in range(args.rounds + 1):
            found = {arch: kinds_of(step) for arch, step in steps.items()}
            if round_number:  # the first one warms up
                whole = sum(found[STOCK].values()) / 100
                for arch, spent in found.items():
                    shares[arch].append({"step": sum(spent.values()) / whole, **{k: spent[k] / whole for k in columns}})
        for arch in group[start > 0 :]:
            middle = {name: statistics.median(one[name] for one in shares[arch]) for name in ["step", *columns]}
            print(f"| {arch} | {middle['step']:.0f} | {' | '.join(f'{middle[k]:.1f}' for k in columns)} |", flush=True)
        del steps


if __name__ == "__main__":
    main()
