"""Average the weights of several checkpoints of one training: ``fairseq-deep average``.

The mean of the last few checkpoints is worth 0.3 to 0.9 BLEU, and most published numbers use such a mean; fairseq's own
script for it is not in any of its distributions. Here every file is mapped rather than read, and only its weights are
touched, one checkpoint at a time, so memory use stays near two models and optimiser states are never loaded.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.checkpoints.mean import RunningMean
from fairseq_plugins.checkpoints.names import checkpoints_of
from fairseq_plugins.checkpoints.provenance import listed
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import require_no_input
from fairseq_plugins.integrity import (
    architecture,
    moving_average,
    num_updates,
    owners_of,
    read_checkpoint,
    recorded,
    weights_hash,
    without_training_state,
    write_checkpoint,
)
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.process import exit_code, importing


def average_checkpoints(inputs: Sequence[Path], output: Path, *, ema: bool = False) -> list[int]:
    """Write the mean of ``inputs``, the newest last, to ``output`` atomically, with the settings of the last one.

    The result holds no optimiser state, and lists its sources under ``averaged_from``. With ``ema`` it is the mean of
    the moving averages (``--store-ema``) instead of the weights.

    Returns:
        The updates of each input; 0 where they are not recorded.

    Raises:
        UserError: an input cannot be read, or has another model, shape, tie, dictionary or measured initialisation than
            the first.
    """
    measured = measured_names()
    from fairseq_plugins.checkpoints.differences import changes_of_model

    sources: list[dict[str, Any]] = []
    first: dict[str, tuple[Any, Path]] = {}
    for path in inputs:
        # The checkpoint before is released first: only one is in memory besides the mean.
        state = weights = None
        state = read_checkpoint(path)
        weights = moving_average(state, path, measured) if ema else state["model"]
        owners, updates, digest = owners_of(weights), num_updates(state), weights_hash(weights)
        settings = without_training_state({key: value for key, value in state.items() if key != "model"})
        facts = {"architecture": architecture(settings), **recorded(settings)}
        for name, value in facts.items():
            first_value, first_path = first.setdefault(name, (value, path))
            if value != first_value:
                raise UserError(f"{path}: its {name.replace('_', ' ')} is not that of {first_path}")
        config = settings.get("cfg") or {}
        begun, begun_at = first.setdefault("cfg", (config, path))
        if changes := changes_of_model(begun, config):
            raise UserError(f"{path}: its model is not that of {begun_at} ({listed(changes)})")
        seeds = [content.get("common", {}).get("seed") for content in (begun, config)]
        if seeds[0] != seeds[1]:
            print(f"warning: {path}: of seed {seeds[1]}, {begun_at} of seed {seeds[0]}", file=sys.stderr)
        if not sources:
            mean = RunningMean(weights, owners, str(path), measured)
        mean.add(weights, str(path))
        sources.append({"file": path.name, "num_updates": updates, "weights_sha256": digest})
    settings["averaged_from"], settings["model"] = sources, mean.result()
    # A stock model's options have a class that torch alone does not load.
    if isinstance(options := config.get("model"), Namespace):
        settings["cfg"] = {**config, "model": {**vars(options), "_name": facts["architecture"]}}
    write_checkpoint(settings, output)
    return [source["num_updates"] or 0 for source in sources]


def measured_names() -> frozenset[str]:
    """Return the leaf names of buffers that belong to one training, or to one version of fairseq's layout.

    Two trainings with Admin measure different omegas; a mean of both would fit the weights of neither.
    """
    # Imported here: this imports fairseq, which takes seconds, and --help need not wait for it.
    with importing():
        from fairseq_plugins.core.method import PARTS

    parts = [part for kind in PARTS.values() for part in kind.values()]
    buffers = [{new.name.rpartition(".")[2] for new in part.parameters if new.buffer} for part in parts]
    return frozenset({"version"}.union(*(names for names in buffers if "calibrated" in names)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep average``; returns 0, or 2 after one line per problem."""
    flags = OneLineParser(prog="fairseq-deep average", description="Average the weights of checkpoints.")
    which = flags.add_mutually_exclusive_group(required=True)
    which.add_argument("--inputs", nargs="+", type=Path, metavar="FILE", help="these checkpoints, the newest last")
    which.add_argument(
        "--last-updates", type=at_least(1), metavar="N", help="the last N saved by --save-interval-updates"
    )
    which.add_argument("--last-epochs", type=at_least(1), metavar="N", help="the last N saved at the end of an epoch")
    flags.add_argument("--checkpoints", type=Path, metavar="DIR", help="directory that contains the checkpoints")
    flags.add_argument("--ema", action="store_true", help="take the moving averages that --store-ema kept")
    flags.add_argument("--output", type=Path, required=True, metavar="FILE", help="the averaged checkpoint")
    return exit_code(lambda: average(flags.read(argv)))


def average(args: Namespace) -> None:
    """Average the checkpoints that the flags name, and say which; a UserError if there are fewer."""
    inputs: list[Path] = args.inputs or []
    if bool(inputs) != (args.checkpoints is None):
        raise UserError("--last-updates and --last-epochs need --checkpoints DIR, and --inputs is given without it")
    if args.last_updates is not None:
        inputs = checkpoints_of(f"last-updates={args.last_updates}", args.checkpoints)
    elif args.last_epochs is not None:
        inputs = checkpoints_of(f"last-epochs={args.last_epochs}", args.checkpoints)
    require_no_input(args.output, inputs)
    average_checkpoints(inputs, args.output, ema=args.ema)
    of = "moving averages in " if args.ema else ""
    print(f"{args.output}: mean of {of}{len(inputs)}: {', '.join(path.name for path in inputs)}")
