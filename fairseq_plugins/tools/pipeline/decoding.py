"""How a run is averaged and decoded: what its checkpoints, its data and the user's options say."""

import argparse
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.checkpoints.names import (
    EPOCH_CHECKPOINT,
    UPDATE_CHECKPOINT,
    last_checkpoints,
    numbered_checkpoints,
)
from fairseq_plugins.checkpoints.provenance import LAST
from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.lines import read_lines
from fairseq_plugins.search import STOCK
from fairseq_plugins.tools.pipeline import corpus
from fairseq_plugins.tools.pipeline.prepare_settings import SET
from fairseq_plugins.tools.pipeline.published import PublishedRow, published_rows
from fairseq_plugins.tools.pipeline.results import Run, read_run
from fairseq_plugins.tools.scoring.metrics import TASKS
from fairseq_plugins.tools.text.description import FILE as DESCRIPTION
from fairseq_plugins.tools.text.description import SUBWORDS, TOKENISERS, Description, described

TRANSLATION, LANGUAGE_MODEL, SPEECH = "translation", "language_modeling", "speech_to_text"
"""The tasks of fairseq whose models are evaluated."""
MAX_TOKENS = {TRANSLATION: 4000, LANGUAGE_MODEL: 4000, SPEECH: 50000}
"""Default batch size: tokens, or frames for speech."""
MOST = {"last-updates": 5, "last-epochs": 10}
"""Default for the number of averaged checkpoints, as in most of the papers."""
_SAVED = {"last-updates": UPDATE_CHECKPOINT, "last-epochs": EPOCH_CHECKPOINT}
_COUNTED = re.compile(r"(last-epochs|last-updates)=([1-9]\d*)")
"""A choice of checkpoints by kind and number."""
SEARCH = ("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size")
"""Further settings of ``generation`` that the decoder gets."""


@dataclass(frozen=True)
class TestSet:
    """A test set: its split in ``data-bin``, its name, and the files of its references.

    The tokenised ones are from before the subwords, so they have the unknown words.
    """

    __test__ = False  # no class of tests

    subset: str
    name: str
    published: Path = Path()
    tokenised: Path | None = None


@dataclass(frozen=True)
class DecodePlan:
    """How a run is averaged, decoded and scored.

    Args:
        task: :data:`TRANSLATION`, :data:`LANGUAGE_MODEL` or :data:`SPEECH`.
        run, data, test_sets: the training, the prepared directory and its test sets.
        binarised: the directory that fairseq reads.
        average: the checkpoints to average, as :func:`inputs` reads it.
        updates: of the newest checkpoint.
        metrics: names of the scores; empty for the default scores of a translation.
        max_tokens: of a batch; changes no result.
        on_gpu: whether the model is on the GPU.
        task_settings: of fairseq's task, by name; the others are fairseq's defaults.
        search: of ``generation``, by name; empty for a language model.
        context_window: of a language model.
        settings: by name; later calls must have the same.
        source, target: languages; empty if there are none.
        text: tokens, subwords and case of the text; None if it is unknown, and for speech, whose task undoes them.
    """

    task: str
    run: Run
    data: Path
    binarised: Path
    test_sets: tuple[TestSet, ...]
    average: str = "none"
    updates: int = 0
    metrics: tuple[str, ...] = ()
    max_tokens: int = MAX_TOKENS[TRANSLATION]
    on_gpu: bool = False
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    context_window: int = 0
    settings: tuple[tuple[str, str], ...] = ()
    source: str = ""
    target: str = ""
    text: Description | None = None

    @property
    def length_penalty(self) -> str:
        """The length penalty and its form, for the signature; empty for a language model."""
        form = self.search.get("lenpen_form", STOCK)
        return f"{self.search['lenpen']:g}" + ("" if form == STOCK else f" ({form})") if self.search else ""


def make_plan(args: argparse.Namespace) -> DecodePlan:
    """Decide how to average and decode a run; a UserError, before anything is written, if that is impossible."""
    run = read_run(args.run)
    # Names are checked before torch and fairseq are imported, which takes seconds.
    binarised = corpus.binarised(args.data)
    sets = sets_to_evaluate(args.data, args.test_sets)
    import torch

    from fairseq_plugins.checkpoints.files import import_fairseq, num_updates, read_checkpoint

    import_fairseq()
    # fairseq logs everything it loads, on standard output.
    logging.getLogger().setLevel(logging.WARNING)
    state = read_checkpoint(newest(run.checkpoints))
    config = configuration_of(state)
    task = str(config.get("task", {}).get("_name"))
    if task not in MAX_TOKENS:
        raise UserError(f"{args.run}: task '{task}' is not supported; supported tasks: {', '.join(MAX_TOKENS)}")
    on_gpu = args.device != "cpu" and torch.cuda.is_available()
    if args.device == "gpu" and not on_gpu:
        raise UserError("--device gpu: there is no GPU that torch can use; legal here: auto, cpu")
    rows = published_rows(run)
    plan = DecodePlan(
        task=task,
        run=run,
        data=args.data,
        binarised=binarised,
        test_sets=tuple(sets),
        average=choose(run, args.average, rows),
        updates=num_updates(state) or run.updates,
        metrics=tuple(args.metrics.split(",")) if args.metrics else (),
        max_tokens=args.max_tokens or MAX_TOKENS[task],
        on_gpu=on_gpu,
    )
    if task == TRANSLATION and not plan.metrics and any(row.metric.startswith("ROUGE") for row in rows):
        # Summaries are trained as translations.
        plan = replace(plan, metrics=TASKS["summarisation"])
    return _DECODINGS[task](plan, args, config)


def sets_to_evaluate(data: Path, wanted: Sequence[str] = ()) -> list[TestSet]:
    """The result of :func:`test_sets`; a UserError if the directory was prepared without a test set."""
    if sets := test_sets(data, wanted):
        return sets
    raise UserError(f"{data}: prepared without a test set; only valid can be evaluated, if it is named")


def test_sets(data: Path, wanted: Sequence[str]) -> list[TestSet]:
    """All test sets of a prepared directory, or the named ones (also ``valid``); a UserError for an unknown name."""
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


def to_average(text: str) -> str:
    """The type of ``--average``: ``last-epochs=10``, ``last-updates=5``, ``none``, or the path of a checkpoint."""
    if text in ("", "none") or _COUNTED.fullmatch(text) or Path(text).is_file():
        return text
    raise UserError(
        f"unknown --average '{text}'; legal values: last-epochs=N, last-updates=N, none, the path of a checkpoint"
    )


def choose(run: Run, requested: str, rows: Sequence[PublishedRow]) -> str:
    """The checkpoints to average, as ``--average`` names them.

    Without a request, the published ``rows`` decide, else the last :data:`MOST` checkpoints or fewer. A UserError if
    the rows disagree.
    """
    if requested:
        return requested
    published = sorted({row.average for row in rows})
    if len(published) > 1:
        raise UserError(f"{run.config}: published with different averages ({', '.join(published)}); set --average")
    if published:
        return published[0]
    for kind, pattern in _SAVED.items():
        if saved := numbered_checkpoints(run.checkpoints, pattern):
            return f"{kind}={min(len(saved), MOST[kind])}"
    return "none"


def inputs(choice: str, checkpoints: Path) -> list[Path]:
    """The checkpoints of a result of :func:`choose`, the newest last; a UserError if there are fewer."""
    counted = _COUNTED.fullmatch(choice)
    if not counted:
        return [checkpoints / LAST if choice == "none" else Path(choice)]
    kind, count = counted[1], int(counted[2])
    return last_checkpoints(checkpoints, count, _SAVED[kind], kind.removeprefix("last-").removesuffix("s"))


def newest(checkpoints: Path) -> Path:
    """The newest checkpoint of a run; a UserError if there is none."""
    last = checkpoints / LAST
    if last.is_file():
        return last
    for pattern in _SAVED.values():
        if saved := numbered_checkpoints(checkpoints, pattern):
            return saved[-1]
    raise UserError(f"{checkpoints}: contains no checkpoint")


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
    """Tokens, subwords and case of a directory's text; a UserError if its ``text.json`` is missing or damaged."""
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
    # Undone before scoring.
    undone = (text.subwords, text.tokeniser, *(["lower-case"] * text.lower_case), *(["truecased"] * text.truecased))
    search = _search(args, config)
    return replace(
        plan,
        test_sets=tuple(_with_references(test_set, args, target) for test_set in plan.test_sets),
        task_settings={"source_lang": source, "target_lang": target},
        search=search,
        settings=(*_recorded(search), ("text", "+".join(undone))),
        source=source,
        target=target,
        text=text,
    )


def _language_model(plan: DecodePlan, args: argparse.Namespace, config: Mapping[str, Any]) -> DecodePlan:
    task, window = config["task"], config.get("eval_lm", {}).get("context_window") or 0
    for name in ("beam", "length_penalty", "metrics"):
        if getattr(args, name) not in (None, ""):
            raise UserError(f"--{name.replace('_', '-')} has no effect: a language model is scored by its perplexity")
    tokens = task.get("tokens_per_sample") or 1024
    if window >= tokens:
        raise UserError(f"eval_lm.context_window must be below task.tokens_per_sample, not {window}")
    samples = {"sample_break_mode": str(task.get("sample_break_mode") or "none"), "tokens_per_sample": tokens}
    raw = args.references or args.data / "raw"
    return replace(
        plan,
        test_sets=tuple(replace(test_set, published=raw / test_set.name) for test_set in plan.test_sets),
        # Each sample starts with the window, which is not scored.
        task_settings={
            **samples,
            "tokens_per_sample": tokens - window,
            "add_bos_token": bool(task.get("add_bos_token")),
        },
        context_window=window,
        settings=_recorded({**samples, "context_window": window}),
        text=described(args.data),
    )


def _speech(plan: DecodePlan, args: argparse.Namespace, config: Mapping[str, Any]) -> DecodePlan:
    directory, name = args.references or args.data / "raw", plan.test_sets[0].name
    languages = sorted(path.name.removeprefix(f"{name}.") for path in directory.glob(f"{name}.*"))
    if len(languages) != 1:
        raise UserError(
            f"{directory}: expected one file {name}.LANGUAGE with the text of {name}, found {len(languages)}"
        )
    search, units = _search(args, config), config["task"].get("config_yaml")
    return replace(
        plan,
        test_sets=tuple(_with_references(test_set, args, languages[0]) for test_set in plan.test_sets),
        metrics=plan.metrics or TASKS["speech"],
        task_settings={"config_yaml": str(units)} if units else {},
        search=search,
        settings=_recorded(search),
        target=languages[0],
    )


_DECODINGS = {TRANSLATION: _translation, LANGUAGE_MODEL: _language_model, SPEECH: _speech}


def _with_references(test_set: TestSet, args: argparse.Namespace, language: str) -> TestSet:
    """The test set with the files of its references."""
    path = (args.references or args.data / "raw") / f"{test_set.name}.{language}"
    if not path.is_file():
        raise UserError(f"{path}: no such file; --references DIR names the directory of the published references")
    tokenised = args.data / "text" / f"{test_set.name}.tok.{language}"
    return replace(test_set, published=path, tokenised=tokenised if tokenised.is_file() else None)


def _search(args: argparse.Namespace, config: Mapping[str, Any]) -> dict[str, Any]:
    """The search: the user's beam and length penalty, else the configuration's; the rest is from the latter."""
    generation = config.get("generation", {})
    penalty = generation.get("lenpen", 1.0) if args.length_penalty is None else args.length_penalty
    search = {"beam": args.beam or generation.get("beam", 5), "lenpen": float(penalty)}
    if (form := str(generation.get("lenpen_form", STOCK))) != STOCK:
        search["lenpen_form"] = form
    return {**search, **{name: generation[name] for name in SEARCH if name in generation}}


def _recorded(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Settings as the file of a workspace has them."""
    shown = {name: f"{value:g}" if name == "lenpen" else str(value) for name, value in settings.items()}
    return tuple((name.replace("_", "-"), value) for name, value in shown.items())
