"""Cost of Admin's profiling pass in training steps: the first training forward against the ones after it.

Run it from the repository's root: ``python benchmarks/profile_cost.py --help``.
"""

import logging
import statistics
from collections.abc import Callable

import torch
from common import interleaved, machine, make_task, model_size, step_flags
from step_time import make_step

from fairseq_plugins.core.calibration import Calibrated


def forget(model: torch.nn.Module) -> None:
    """Make the model one that has not seen data."""
    model.data_seen = False
    for module in model.modules():
        if isinstance(module, Calibrated):
            module.calibrated.zero_()


def main() -> None:
    """Print how many ordinary steps the profiling pass costs."""
    args = step_flags(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    logging.getLogger("fairseq_plugins").setLevel(logging.ERROR)
    step, model = make_step("admin_transformer", args, make_task(args.vocabulary), model_size(args))

    def profiled() -> None:
        forget(model)
        step()

    runs: dict[str, Callable[[], None]] = {"ordinary": step, "with profile": profiled}
    seconds = interleaved(runs, args.rounds, args.device)
    pairs = list(zip(seconds["ordinary"], seconds["with profile"], strict=True))
    for clock in ("wall", "processor"):
        extra = [b[clock] / a[clock] - 1 for a, b in pairs]
        print(
            f"{machine(args.device)}: the pass costs {statistics.median(extra):.2f} training steps ({clock} clock, "
            f"{min(extra):.2f} to {max(extra):.2f} over {len(extra)} rounds)"
        )


if __name__ == "__main__":
    main()
