"""How a run is averaged and decoded: the plan, whose search depends on the task, the data and the user's options."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.search import STOCK
from fairseq_plugins.tools.pipeline import corpus
from fairseq_plugins.tools.pipeline.corpus import TestSet
from fairseq_plugins.tools.scoring.metrics import TASKS
from fairseq_plugins.tools.text.description import Description, described

TRANSLATION, LANGUAGE_MODEL, SPEECH = "translation", "language_modeling", "speech_to_text"
"""The tasks of fairseq whose models are evaluated."""
MAX_TOKENS = {TRANSLATION: 4000, LANGUAGE_MODEL: 4000, SPEECH: 50000}
"""Default batch size: tokens, or frames for speech."""
SEARCH = (
    *("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size", "match_source_len", "unnormalized", "unkpen"),
    *("temperature", "diverse_beam_groups", "diversity_rate", "search", "no_search_graphs"),
)
"""Further settings of ``generation`` that the decoder gets, where they are not the default."""


@dataclass(frozen=True)
class DecodePlan:
    """How a run is averaged, decoded and scored.

    Args:
        task: :data:`TRANSLATION`, :data:`LANGUAGE_MODEL` or :data:`SPEECH`.
        data, test_sets: the prepared directory and its test sets.
        binarised: the directory that fairseq reads.
        contents: the checksum of each test set there, by its subset.
        finished: whether the training has ended.
        seed: of the training; None if it is unknown.
        average: the checkpoints to average, as ``--average`` names them.
        checkpoints: these, the newest last; none if they have been averaged.
        made_with: settings of the average by name; later calls must have the same.
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
    data: Path
    binarised: Path
    test_sets: tuple[TestSet, ...]
    contents: Mapping[str, str] = field(default_factory=dict)
    finished: bool = True
    seed: int | None = None
    average: str = "none"
    checkpoints: tuple[Path, ...] = ()
    made_with: tuple[tuple[str, str], ...] = ()
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
        if self.search.get("unnormalized"):
            return "none"
        form = self.search.get("lenpen_form", STOCK)
        return f"{self.search['lenpen']:g}" + ("" if form == STOCK else f" ({form})") if self.search else ""


def _translation(plan: DecodePlan, args: argparse.Namespace, config: Mapping[str, Any]) -> DecodePlan:
    text, (source, target) = corpus.text_of(args.data), corpus.languages_of(plan.binarised, config["task"])
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


DECODINGS = {TRANSLATION: _translation, LANGUAGE_MODEL: _language_model, SPEECH: _speech}


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
    chosen = not_usual(generation)
    if unread := chosen.keys() - {"beam", "lenpen", "lenpen_form", *SEARCH}:
        print(f"warning: evaluate does not follow generation.{', generation.'.join(sorted(unread))}", file=sys.stderr)
    penalty = generation.get("lenpen", 1.0) if args.length_penalty is None else args.length_penalty
    search = {"beam": args.beam or generation.get("beam", 5), "lenpen": float(penalty)}
    if (form := str(generation.get("lenpen_form", STOCK))) != STOCK:
        search["lenpen_form"] = form
    return search | {name: chosen[name] for name in SEARCH if name in chosen}


def not_usual(generation: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a search that are not fairseq's default, by name."""
    from fairseq_plugins.search.settings import GenerationConfigWithForm

    usual = vars(GenerationConfigWithForm())
    return {name: value for name, value in generation.items() if name in usual and value != usual[name]}


def _recorded(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Settings as the file of a workspace has them."""
    shown = {name: f"{value:g}" if name == "lenpen" else str(value) for name, value in settings.items()}
    return tuple((name.replace("_", "-"), value) for name, value in shown.items())
