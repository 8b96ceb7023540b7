"""``fairseq-deep evaluate RUN DATA [TEST_SET ...]``: average the checkpoints of a run, translate the test sets, score.

Every sentence of a test set is translated exactly once, or the evaluation stops. Each stage writes one file, whole or
absent, and the next call keeps it.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fairseq_plugins.checkpoints.names import checkpoints_of, newest, to_average, usual_average
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.options import OneLineParser, at_least, finite
from fairseq_plugins.processor import DEVICES, device_name
from fairseq_plugins.sums import checksum, require_sums
from fairseq_plugins.tools.pipeline import corpus
from fairseq_plugins.tools.pipeline.commands import interruptible
from fairseq_plugins.tools.pipeline.decoding import DECODINGS, MAX_TOKENS, TRANSLATION, DecodePlan
from fairseq_plugins.tools.pipeline.published import published_average, published_rows
from fairseq_plugins.tools.pipeline.results import (
    AVERAGE_WARNING,
    AVERAGED,
    EVALUATION,
    SCORES,
    SELF_CHECK,
    TOKENS,
    read_run,
)
from fairseq_plugins.tools.pipeline.self_check import write_check
from fairseq_plugins.tools.pipeline.workspace import SETTINGS, Workspace, remove, say
from fairseq_plugins.tools.scoring.metrics import TASKS, metric_names

WIDE_SPAN = 1 / 5
"""Share of a training's updates from which the span of an average is worth a warning."""

# --- options --------------------------------------------------------------------------------------------------------


def add_options(flags: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add the options that a comparison passes on to each evaluation."""
    average = (
        "last-epochs=N, last-updates=N, none (the last checkpoint), or the path of a checkpoint; default: as the "
        "published row of the configuration, else at most the last 5 checkpoints saved by update or 10 saved by epoch"
    )
    accepted = "continue although prepared and published references differ; REASON is in the signature"
    add = flags.add_argument_group("evaluation").add_argument
    return [
        add("--average", type=to_average, default="", metavar="WHAT", help=average),
        add("--beam", type=at_least(1), metavar="N", help="default: generation.beam of the configuration"),
        add("--length-penalty", type=finite, metavar="X", help="default: generation.lenpen of the configuration"),
        add("--metrics", type=metric_names, metavar="A,B,...", help="scores; default: by the task"),
        add("--max-tokens", type=at_least(1), metavar="N", help="per batch; default: 4000, for speech 50000 frames"),
        add("--device", type=device_name, choices=DEVICES, default="auto", help="default: auto"),
        add("--accept-references", default="", metavar="REASON", help=accepted),
        add("--references", type=Path, metavar="DIR", help="TEST_SET.LANGUAGE as published; default: DATA/raw"),
    ]


def parser() -> OneLineParser:
    """Flags of ``fairseq-deep evaluate``."""
    flags = OneLineParser(
        prog="fairseq-deep evaluate",
        description="Average the checkpoints of a run, translate the test sets, and score the translations.",
    )
    flags.add_argument("run", type=Path, metavar="RUN", help="a directory of fairseq-deep run")
    flags.add_argument("data", type=Path, metavar="DATA", help="the prepared directory that it was trained on")
    sets = "names in DATA/test_sets, or valid; default: all in that file"
    flags.add_argument("test_sets", nargs="*", default=[], metavar="TEST_SET", help=sets)
    add_options(flags)
    output = "default: RUN/evaluation; another directory also gets the averaged checkpoint"
    flags.add_argument("--output", type=Path, metavar="DIR", help=output)
    return flags


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep evaluate RUN DATA [TEST_SET ...]``."""
    evaluate(parser().read(argv))
    return 0


# --- the plan -------------------------------------------------------------------------------------------------------


def make_plan(args: argparse.Namespace) -> DecodePlan:
    """Decide how to average and decode a run; a UserError, before anything is written, if that is impossible."""
    # Names are checked before torch and fairseq are imported, which takes seconds.
    corpus.require_apart(args.run, args.data, "RUN")
    if args.output is not None:
        corpus.require_apart(args.output, args.data, "--output")
    binarised = corpus.binarised(args.data)
    sets = corpus.sets_to_evaluate(args.data, args.test_sets)
    require_sums(binarised, *(f"{test_set.subset}.*" for test_set in sets))
    contents = {one.subset: checksum(*sorted(binarised.glob(f"{one.subset}.*"))) for one in sets}
    given = Path(args.average)
    run = read_run(args.run)
    rows = published_rows(run)
    average = args.average or published_average(rows) or usual_average(run.checkpoints)
    one = given if given.is_file() else newest(run.checkpoints)
    averaged = (args.output or args.run) / AVERAGED
    checkpoints = [] if averaged.exists() else checkpoints_of(average, run.checkpoints)
    import torch

    from fairseq_plugins.integrity import configuration_of, num_updates, read_checkpoint, weights_hash

    state = read_checkpoint(one)
    # A run that was deleted and trained anew has the same path and number of updates.
    model = ("checkpoint", checksum(given)) if given.is_file() else ("weights", weights_hash(state["model"]))
    # fairseq logs everything it loads, on standard output.
    logging.getLogger().setLevel(logging.WARNING)
    config = configuration_of(state)
    for group, name, own in (("model", "_name", run.configured("model", "_name")), ("common", "seed", run.seed)):
        if (theirs := config.get(group, {}).get(name)) not in (None, own) and own is not None:
            raise UserError(f"{one}: of another training than {args.run}: {group}.{name} is {theirs}, not {own}")
    updates = num_updates(state) or run.updates
    task = str(config.get("task", {}).get("_name"))
    if task not in MAX_TOKENS:
        raise UserError(f"{args.run}: task '{task}' is not supported; supported tasks: {', '.join(MAX_TOKENS)}")
    on_gpu = args.device != "cpu" and torch.cuda.is_available()
    if args.device == "gpu" and not on_gpu:
        raise UserError("--device gpu: there is no GPU that torch can use; legal here: auto, cpu")
    metrics = tuple(args.metrics.split(",")) if args.metrics else ()
    if task == TRANSLATION and not metrics and any(row.metric.startswith("ROUGE") for row in rows):
        # Summaries are trained as translations.
        metrics = TASKS["summarisation"]
    plan = DecodePlan(
        task=task,
        data=args.data,
        binarised=binarised,
        test_sets=tuple(sets),
        contents=contents,
        finished=run.finished is not None,
        seed=run.seed,
        average=average,
        checkpoints=tuple(checkpoints),
        made_with=(("average", average), ("updates", str(updates)), model),
        updates=updates,
        metrics=metrics,
        max_tokens=args.max_tokens or MAX_TOKENS[task],
        on_gpu=on_gpu,
    )
    return DECODINGS[task](plan, args, config)


# --- the stages -----------------------------------------------------------------------------------------------------


def evaluate(args: argparse.Namespace) -> None:
    """Average the checkpoints, then translate and score one test set after the other, all in this process."""
    plan = make_plan(args)
    # Imported late, with torch and fairseq.
    from fairseq_plugins.checkpoints.average import average_checkpoints
    from fairseq_plugins.tools.pipeline.inference import evaluate_set

    model = (args.output or args.run) / AVERAGED
    workspace = Workspace(args.output or args.run / EVALUATION)
    if model.exists() and not (workspace.directory / SETTINGS).exists():
        raise UserError(f"{model}: exists, but not from an evaluation; move or delete it")

    def average(target: Path) -> None:
        """Write the averaged checkpoint; print and store a warning if the average spans too much of the training."""
        updates, warned = average_checkpoints(plan.checkpoints, target), workspace.directory / AVERAGE_WARNING
        remove(warned)
        # Updates 100 to 400 of 400 cost 7 to 9 BLEU on Multi30k, and reversed the order of two methods.
        if updates[-1] - updates[0] > plan.updates * WIDE_SPAN:
            span = f"the average spans updates {updates[0]:,} to {updates[-1]:,} of {plan.updates:,}"
            print(f"warning: {span}, which may cost BLEU; average fewer checkpoints, or none", file=sys.stderr)
            write_whole(warned, f"{span}, which may cost BLEU\n")
        say(f"mean of {len(updates)}: {', '.join(path.name for path in plan.checkpoints)}")

    # Another directory than the run's own may be given for another run, too.
    of_run = (("run", str(args.run.resolve())),) if args.output else ()
    with interruptible(), workspace.claimed((*plan.made_with, *of_run), model):
        if not plan.finished:
            say(f"{args.run}: the training has not finished; evaluating it after {plan.updates} updates")
        search = f", beam {plan.search['beam']}, length penalty {plan.length_penalty}" if plan.search else ""
        say(f"{args.run}: {plan.average}{search}")
        places = {test_set: Workspace(workspace.directory / test_set.name) for test_set in plan.test_sets}
        # Check all test sets before the first is translated, which may take hours.
        for test_set, place in places.items():
            of_set = (("subset", test_set.subset), ("content", plan.contents.get(test_set.subset, "")))
            settings = (*plan.made_with, *of_set, *plan.settings, ("metrics", args.metrics or ""))
            place.remember(settings, place.directory / (TOKENS if plan.search else SCORES))
            if not (place.directory / SCORES).exists():  # a check that belongs to scores stays
                remove(place.directory / SELF_CHECK)
            write = partial(write_check, plan, test_set, accepted=args.accept_references)
            place.make(place.directory / SELF_CHECK, write)
        workspace.make(model, average)
        for test_set, place in places.items():
            evaluate_set(plan, test_set, model, place)
