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

from fairseq_plugins.checkpoints.names import to_average
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum, write_whole
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.options import OneLineParser, at_least, finite
from fairseq_plugins.processor import DEVICES, device_name
from fairseq_plugins.records import read_json
from fairseq_plugins.tools.pipeline.checkout import commit
from fairseq_plugins.tools.pipeline.commands import interruptible
from fairseq_plugins.tools.pipeline.corpus import TestSet
from fairseq_plugins.tools.pipeline.decoding import DecodePlan, make_plan
from fairseq_plugins.tools.pipeline.results import (
    AVERAGE_WARNING,
    AVERAGED,
    EVALUATION,
    HYPOTHESES,
    REFERENCES,
    SCORES,
    TOKENISED_REFERENCES,
    TOKENS,
)
from fairseq_plugins.tools.pipeline.self_check import FILE as SELF_CHECK
from fairseq_plugins.tools.pipeline.self_check import write_check
from fairseq_plugins.tools.pipeline.workspace import SETTINGS, Workspace, remove, say
from fairseq_plugins.tools.scoring.metrics import metric_names

WIDE = 1 / 5
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


# --- the stages -----------------------------------------------------------------------------------------------------


def evaluate(args: argparse.Namespace) -> None:
    """Average the checkpoints, then translate and score one test set after the other, all in this process."""
    plan = make_plan(args)
    model = (args.output or args.run) / AVERAGED
    workspace = Workspace(args.output or args.run / EVALUATION)
    if model.exists() and not (workspace.directory / SETTINGS).exists():
        raise UserError(f"{model}: exists, but not from an evaluation; move or delete it")
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
            settings = (*plan.made_with, ("subset", test_set.subset), *plan.settings, ("metrics", args.metrics or ""))
            place.remember(settings, place.directory / (TOKENS if plan.search else SCORES))
            if not (place.directory / SCORES).exists():  # a check that belongs to scores stays
                remove(place.directory / SELF_CHECK)
            write = partial(write_check, plan, test_set, accepted=args.accept_references)
            place.make(place.directory / SELF_CHECK, write)
        workspace.make(model, lambda target: _average(plan, target, workspace.directory / AVERAGE_WARNING))
        for test_set, place in places.items():
            _evaluate(plan, test_set, model, place)


def _average(plan: DecodePlan, target: Path, warned: Path) -> None:
    """Write the averaged checkpoint; print, and keep in ``warned``, that the average spans too much of the training."""
    # Imported late, with torch.
    from fairseq_plugins.checkpoints.average import average_checkpoints

    updates = average_checkpoints(plan.checkpoints, target)
    remove(warned)
    # Updates 100 to 400 of 400 cost 7 to 9 BLEU on Multi30k, and reversed the order of two methods.
    if updates[-1] - updates[0] > plan.updates * WIDE:
        line = f"the average spans updates {updates[0]:,} to {updates[-1]:,} of {plan.updates:,}, which may cost BLEU"
        print(f"warning: {line}; average fewer checkpoints, or none", file=sys.stderr)
        write_whole(warned, f"{line}\n")
    say(f"mean of {len(updates)}: {', '.join(path.name for path in plan.checkpoints)}")


def _evaluate(plan: DecodePlan, test_set: TestSet, model: Path, workspace: Workspace) -> None:
    """Translate and score one test set, or score it with a language model; write the signature. Each file is whole."""
    from fairseq_plugins.tools.pipeline.inference import write_perplexity, write_translations

    place, make = workspace.directory, workspace.make
    if not plan.search:
        make(place / SCORES, lambda target: write_perplexity(plan, test_set, model, target))
    else:
        make(place / TOKENS, lambda target: write_translations(plan, test_set, model, target))
        references, before = list(read_lines(test_set.published)), place / REFERENCES
        if (place / SCORES).exists() and before.exists() and list(read_lines(before)) != references:
            raise UserError(f"{place}: scored against other references than {test_set.published}; delete it")
        make(place / SCORES, lambda target: _write_scores(plan, references, target))
    make(place / "signature", lambda target: sign(plan, model, place, target))
    for name in ("score.txt", "signature"):
        print((place / name).read_text(encoding="utf-8"), end="", flush=True)


def _read(path: Path) -> list[str]:
    """The lines of a file of this module, which may begin with what is a byte order mark elsewhere."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def _write_scores(plan: DecodePlan, references: Sequence[str], target: Path) -> None:
    """Write plain text and its scores as a table beside ``target``, and the scores to it as JSON; print warnings."""
    from fairseq_plugins.tools.scoring.scores import score
    from fairseq_plugins.tools.scoring.tables import as_json, as_text
    from fairseq_plugins.tools.text.moses import decoder

    for library in ("sacrebleu", "absl"):
        logging.getLogger(library).setLevel(logging.ERROR)
    text, tokens = plan.text, _read(target.with_name(TOKENS))
    plain = tokens if text is None else list(map(decoder(text, plan.target), tokens))
    write_lines(target.with_name(REFERENCES), references)
    write_lines(target.with_name(HYPOTHESES), plain)
    in_tokens = text is not None and text.tokeniser == "moses"
    scores = score(
        {HYPOTHESES: plain},
        [references],
        tokenised_systems={HYPOTHESES: tokens} if in_tokens else None,
        tokenised_references=[_read(target.with_name(TOKENISED_REFERENCES))] if in_tokens else None,
        # A name such as pt-BR would make the pair ambiguous.
        language_pair="-".join(name.replace("-", "_") for name in (plan.source, plan.target)) if text else None,
        metrics=plan.metrics or None,
        lower_case=text is not None and text.lower_case,
    )
    for warning in scores.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    write_whole(target.with_name("score.txt"), as_text(scores))
    write_whole(target, as_json(scores))


def sign(plan: DecodePlan, model: Path, place: Path, target: Path) -> None:
    """Write the signature, one line with everything that a score depends on."""
    scores = read_json(place / SCORES, {"metrics": ([{"signature": (str, None)}], None)})
    check = read_json(place / SELF_CHECK, {"accepted": str})
    metrics = [metric for metric in scores.get("metrics") or [] if metric.get("signature")]
    revision = commit()
    parts = {
        "commit": f"{revision[:12]}{revision[40:]}" if revision else "-",
        "seed": plan.seed,
        "checkpoint": checksum(model)[:12],
        "average": plan.average,
        "updates": plan.updates,
        "beam": plan.search.get("beam"),
        "length-penalty": plan.length_penalty,
        "sentences": scores.get("sentences"),
        "accepted": "_".join(check["accepted"].split()),
        "score": metrics[0]["signature"] if metrics else None,
    }
    write_whole(target, " ".join(f"{name}:{value}" for name, value in parts.items() if value not in (None, "")) + "\n")
