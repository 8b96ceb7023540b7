"""How a run is averaged and decoded: from its checkpoints, its data and the user's options to fairseq's commands."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.lines import read_lines
from fairseq_plugins.tools.pipeline import corpus
from fairseq_plugins.tools.pipeline.prepare_settings import SET
from fairseq_plugins.tools.pipeline.published import published_rows
from fairseq_plugins.tools.pipeline.results import Run, read_run
from fairseq_plugins.tools.scoring.metrics import TASKS
from fairseq_plugins.tools.text.description import FILE as DESCRIPTION
from fairseq_plugins.tools.text.description import SUBWORDS, TOKENISERS, Description, described

TRANSLATION, LANGUAGE_MODEL, SPEECH = "translation", "language_modeling", "speech_to_text"
"""The tasks of fairseq whose models are evaluated."""
MAX_TOKENS = {TRANSLATION: 4000, LANGUAGE_MODEL: 4000, SPEECH: 50000}
"""Default batch size: tokens, or frames for speech."""
SEARCH = ("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size")
"""Settings of ``generation`` that the decoder gets besides the beam and the length penalty."""
IF_BETTER = ",if-better"
"""Ends a choice of checkpoints that are averaged only if that lowers the loss on the validation set."""
COUNTED = re.compile(rf"(last-epochs|last-updates)=([1-9]\d*)(?:{IF_BETTER})?")
"""A choice of checkpoints by kind and number."""


@dataclass(frozen=True)
class TestSet:
    """A test set: its split in ``data-bin``, its name, and the file of its published references."""

    __test__ = False  # no class of tests

    subset: str
    name: str
    published: Path = Path()


@dataclass(frozen=True)
class DecodePlan:
    """How a run is averaged, decoded and scored.

    Args:
        task: :data:`TRANSLATION`, :data:`LANGUAGE_MODEL` or :data:`SPEECH`.
        run, data, test_sets: the training, the prepared directory and its test sets.
        binarised: the directory that fairseq reads.
        average: the checkpoints to average, as :func:`~fairseq_plugins.tools.pipeline.averaging.inputs` reads it.
        updates: of the newest checkpoint.
        validation: the validation sets of the training, with commas between; empty if the data have none.
        metrics: names of the scores; empty for those of a translation.
        batches: flags of ``fairseq-deep generate`` or ``eval-lm`` that change no result.
        flags: the other flags.
        settings: by name; later calls must have the same.
        beam, length_penalty: for the signature; empty for a language model.
        source, target: languages; empty if there are none.
        text: tokens, subwords and case of the text; None if it is unknown, and for speech, whose task undoes them.
        units: for speech, the name of the file that describes its units.
    """

    task: str
    run: Run
    data: Path
    binarised: Path
    test_sets: tuple[TestSet, ...]
    average: str = "none"
    updates: int = 0
    validation: str = ""
    metrics: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    beam: str = ""
    length_penalty: str = ""
    source: str = ""
    target: str = ""
    text: Description | None = None
    units: str = "config.yaml"

    @property
    def log(self) -> str:
        """The file of what fairseq prints."""
        return "eval-lm.log" if self.task == LANGUAGE_MODEL else "generate.log"


def to_average(text: str) -> str:
    """The type of ``--average``: ``last-epochs=10``, ``last-updates=5,if-better``, ``none``, a checkpoint's path."""
    if text in ("", "none") or COUNTED.fullmatch(text) or Path(text).is_file():
        return text
    raise UserError(
        f"unknown --average '{text}'; legal values: last-epochs=N or last-updates=N, with or without "
        f"{IF_BETTER}; none; the path of a checkpoint"
    )


def metrics_in(text: str) -> tuple[str, ...]:
    """The names in the text of ``--metrics``."""
    return tuple(map(str.strip, text.split(","))) if text else ()


def make_plan(args: argparse.Namespace) -> DecodePlan:
    """Decide how to average and decode a run.

    Raises:
        UserError: something is missing or contradictory; nothing has been written yet.
    """
    run = read_run(args.run)
    # Names are checked before torch and fairseq are imported, which takes seconds.
    binarised = corpus.binarised(args.data)
    sets = sets_to_evaluate(args.data, args.test_sets)
    import torch

    from fairseq_plugins.checkpoints.files import import_fairseq, num_updates, read_checkpoint
    from fairseq_plugins.tools.pipeline import averaging

    import_fairseq()
    # fairseq logs everything it loads, on standard output.
    logging.getLogger().setLevel(logging.WARNING)
    newest = read_checkpoint(averaging.newest(run.checkpoints))
    config = configuration_of(newest)
    task = str(config.get("task", {}).get("_name"))
    if task not in MAX_TOKENS:
        raise UserError(f"{args.run}: task '{task}' is not supported; supported tasks: {', '.join(MAX_TOKENS)}")
    # A training of speech calls it dev; one without validation may have none.
    validation = str(config.get("dataset", config["task"]).get("valid_subset") or "valid")
    on_gpu = args.device != "cpu" and torch.cuda.is_available()
    if args.device == "gpu" and not on_gpu:
        raise UserError("--device gpu: there is no GPU that torch can use; legal here: auto, cpu")
    plan = DecodePlan(
        task=task,
        run=run,
        data=args.data,
        binarised=binarised,
        test_sets=tuple(sets),
        average=averaging.choose(run, args.average),
        updates=num_updates(newest) or run.updates,
        validation=validation if all(any(binarised.glob(f"{name}.*")) for name in validation.split(",")) else "",
        metrics=metrics_in(args.metrics),
        batches=("--max-tokens", str(args.max_tokens or MAX_TOKENS[task]), *(() if on_gpu else ("--cpu",))),
    )
    if plan.average.endswith(IF_BETTER) and not plan.validation:
        raise UserError(f"--average {plan.average}: {binarised} has no validation set '{validation}'")
    return _DECODINGS[task](plan, args, config)


def sets_to_evaluate(data: Path, wanted: Sequence[str] = ()) -> list[TestSet]:
    """As :func:`test_sets`, but at least one; a UserError if the directory was prepared without a test set."""
    if sets := test_sets(data, wanted):
        return sets
    raise UserError(f"{data}: prepared without a test set; only valid can be evaluated, if it is named")


def test_sets(data: Path, wanted: Sequence[str]) -> list[TestSet]:
    """The test sets of a prepared directory: all of them, or the named ones. ``valid`` can be named, too.

    Raises:
        UserError: ``DATA/test_sets`` is damaged or lacks a named set.
    """
    table = data / "test_sets"
    sets = [TestSet("test", "test")]
    if table.exists():
        lines = read_lines(table) if table.stat().st_size else ()
        rows = [line.split("\t") for line in lines if line.strip()]
        if any(len(row) != 2 or not all(map(SET.fullmatch, row)) for row in rows):
            raise UserError(
                f"{table}: each line must be a split in data-bin, a tab, and a name of letters, digits and -_."
            )
        sets = [TestSet(subset, name) for subset, name in rows]
    by_name = {test_set.name: test_set for test_set in [*sets, TestSet("valid", "valid")]}
    if unknown := [name for name in wanted if name not in by_name]:
        raise UserError([f"{data}: {unknown_name('test set', name, by_name)}" for name in unknown])
    return [by_name[name] for name in wanted] if wanted else sets


def configuration_of(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of a checkpoint by group, in either of fairseq's two styles; some tasks mix them."""
    if state.get("cfg"):
        groups = {
            name: vars(group) if isinstance(group, argparse.Namespace) else group
            for name, group in state["cfg"].items()
        }
        return {name: dict(group) for name, group in groups.items() if isinstance(group, Mapping)}
    flat = vars(state["args"]) if state.get("args") is not None else {}
    return {"task": {**flat, "_name": flat.get("task")}} if flat else {}


def text_of(data: Path) -> Description:
    """Tokens, subwords and case of a directory's text, from its ``text.json``.

    Raises:
        UserError: it has none, or a damaged one.
    """
    if text := described(data):
        return text
    if (above := data.resolve().parent / DESCRIPTION).is_file():
        raise UserError(f"{data}: no {DESCRIPTION} describes its text (did you mean '{above.parent}', which has one?)")
    raise UserError(
        f"{data}: no {DESCRIPTION} describes its text; write it: python -m fairseq_plugins.tools.text describe "
        f"--tokeniser {'|'.join(TOKENISERS)} --subwords {'|'.join(SUBWORDS)} {data / DESCRIPTION}"
    )


def _translation(plan: DecodePlan, args: argparse.Namespace, config: Mapping[str, Any]) -> DecodePlan:
    text, (source, target) = text_of(args.data), corpus.languages_of(plan.binarised, config["task"])
    sets = []
    for test_set in plan.test_sets:
        prefix = plan.binarised / f"{test_set.subset}.{source}-{target}.{target}"
        lengths = corpus.lengths(prefix)
        if lengths is None:
            raise UserError(f"{prefix}.bin: no such binarised test set")
        sets.append(_with_references(test_set, args, target, prefix, len(lengths)))
    plan = _with_search(replace(plan, test_sets=tuple(sets), source=source, target=target, text=text), args, config)
    if not plan.metrics and any(row.metric.startswith("ROUGE") for row in published_rows(plan.run)):
        # Summaries are trained as translations.
        plan = replace(plan, metrics=TASKS["summarisation"])
    # Undone before scoring.
    undone = (text.subwords, text.tokeniser, *(["lower-case"] * text.lower_case), *(["truecased"] * text.truecased))
    words = ("--task", plan.task, "--source-lang", source, "--target-lang", target)
    joined = () if text.subwords == "none" else (f"--remove-bpe={text.subwords}",)
    return replace(plan, flags=(*plan.flags, *words, *joined), settings=(*plan.settings, ("text", "+".join(undone))))


def _language_model(plan: DecodePlan, args: argparse.Namespace, config: Mapping[str, Any]) -> DecodePlan:
    task, window = config["task"], config.get("eval_lm", {}).get("context_window") or 0
    for name in ("beam", "length_penalty", "metrics"):
        if getattr(args, name) not in (None, ""):
            raise UserError(f"--{name.replace('_', '-')} has no effect: a language model is scored by its perplexity")
    tokens = task.get("tokens_per_sample") or 1024
    if window >= tokens:
        raise UserError(f"eval_lm.context_window must be below task.tokens_per_sample, not {window}")
    flags = ["--sample-break-mode", str(task.get("sample_break_mode") or "none")]
    flags += ["--tokens-per-sample", str(tokens), "--context-window", str(window)]
    start = ("--add-bos-token",) if task.get("add_bos_token") else ()
    raw = args.references or args.data / "raw"
    sets = tuple(replace(test_set, published=raw / test_set.name) for test_set in plan.test_sets)
    text = described(args.data)
    return replace(plan, test_sets=sets, flags=(*flags, *start), settings=_settings(flags), text=text)


def _speech(plan: DecodePlan, args: argparse.Namespace, config: Mapping[str, Any]) -> DecodePlan:
    directory, name = args.references or args.data / "raw", plan.test_sets[0].name
    languages = sorted(path.name.removeprefix(f"{name}.") for path in directory.glob(f"{name}.*"))
    if len(languages) != 1:
        raise UserError(
            f"{directory}: expected one file {name}.LANGUAGE with the text of {name}, found {len(languages)}"
        )
    sets = []
    for test_set in plan.test_sets:
        table = plan.binarised / f"{test_set.subset}.tsv"
        sets.append(_with_references(test_set, args, languages[0], table, len(list(read_lines(table))) - 1))
    units = str(config["task"].get("config_yaml") or plan.units)
    plan = _with_search(replace(plan, test_sets=tuple(sets), target=languages[0], units=units), args, config)
    # The task joins its units itself; joining them twice would merge words.
    flags = (*plan.flags, "--task", plan.task, "--config-yaml", units)
    return replace(plan, flags=flags, metrics=plan.metrics or TASKS["speech"])


_DECODINGS = {TRANSLATION: _translation, LANGUAGE_MODEL: _language_model, SPEECH: _speech}


def _with_references(
    test_set: TestSet, args: argparse.Namespace, language: str, binarised: Path, sentences: int
) -> TestSet:
    """The test set with the file of its published references, which has as many lines as ``binarised`` sentences."""
    path = (args.references or args.data / "raw") / f"{test_set.name}.{language}"
    if not path.is_file():
        raise UserError(f"{path}: no such file; --references DIR names the directory of the published references")
    if (lines := len(list(read_lines(path)))) != sentences:
        raise UserError(
            f"{path}: {lines} lines, but {binarised.name} in {binarised.parent.name} has {sentences} sentences: "
            "not the references of this test set"
        )
    return replace(test_set, published=path)


def _with_search(plan: DecodePlan, args: argparse.Namespace, config: Mapping[str, Any]) -> DecodePlan:
    """The plan with the user's beam and length penalty, else the configuration's; the rest is from the latter."""
    generation = config.get("generation", {})
    form = str(generation.get("lenpen_form", "fairseq"))
    beam = str(args.beam or generation.get("beam", 5))
    penalty = f"{float(generation.get('lenpen', 1.0) if args.length_penalty is None else args.length_penalty):g}"
    flags = ["--beam", beam, "--lenpen", penalty]
    flags += [] if form == "fairseq" else ["--lenpen-form", form]
    for key in SEARCH:
        flags += [flag(key), str(generation[key])] if key in generation else []
    shown = penalty if form == "fairseq" else f"{penalty} ({form})"
    return replace(plan, flags=tuple(flags), settings=_settings(flags), beam=beam, length_penalty=shown)


def _settings(flags: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Flags with one value each, as settings that later calls must repeat."""
    return tuple((option.removeprefix("--"), value) for option, value in zip(flags[::2], flags[1::2], strict=True))


# --- fairseq's commands ---------------------------------------------------------------------------------------------


def decode(plan: DecodePlan, test_set: TestSet, model: Path, output: Path) -> None:
    """Translate or score a test set by fairseq's ``generate`` or ``eval-lm``; what it prints and logs is ``output``.

    Raises:
        UserError: as the command.
    """
    from fairseq_cli import eval_lm, generate

    name, main = ("eval-lm", eval_lm.cli_main) if plan.task == LANGUAGE_MODEL else ("generate", generate.cli_main)
    _call(main, [name, str(plan.binarised), "--gen-subset", test_set.subset, *plan.flags], plan, model, output)


def validation_loss(plan: DecodePlan, model: Path) -> float:
    """The loss of a checkpoint on the validation set, in bits per token and not smoothed, by fairseq's ``validate``.

    Raises:
        UserError: as the command.
    """
    from fairseq.logging import metrics
    from fairseq_cli import validate

    words = ["validate", str(plan.binarised), "--task", plan.task, "--valid-subset", plan.validation]
    words += ["--model-overrides", "{'eval_bleu': False}", "--skip-invalid-size-inputs-valid-test"]
    with metrics.aggregate() as measured:
        _call(validate.cli_main, words, plan, model, Path(os.devnull))
    values = measured.get_smoothed_values()
    # A criterion without smoothing may log one loss alone.
    return float(values.get("nll_loss", values["loss"]))


def _call(main: Callable[[], None], words: Sequence[str], plan: DecodePlan, model: Path, output: Path) -> None:
    """Call a command of fairseq in this process; what it prints and logs is ``output``."""
    # A progress bar for a terminal only.
    quiet = [] if sys.stderr.isatty() else ["--no-progress-bar", "--log-format", "none"]
    root, before = logging.getLogger(), sys.argv
    handlers, level = root.handlers[:], root.level
    lines = logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S")
    with open(output, "w", encoding="utf-8") as stream, redirect_stdout(stream):
        root.handlers[:] = [logging.StreamHandler(stream)]
        root.handlers[0].setFormatter(lines)
        root.setLevel(logging.INFO)
        command, *rest = words
        sys.argv = [f"fairseq-deep {command}", *rest, "--path", str(model), "--num-workers", "0", *plan.batches, *quiet]
        try:
            main()
        finally:
            root.handlers[:], sys.argv = handlers, before
            root.setLevel(level)
