"""``--search``, ``--lenpen-form``, ``--no-search-graphs``: flags, and keys of ``generation`` and ``eval_bleu_args``.

fairseq has no registry for searches, and a task of this package would be one task among thirty. So the class that
declares the settings of a search gets these, and the method by which tasks build their search is wrapped.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of a dataclass, not of their names.

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.constants import ChoiceEnum
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.search import GNMT, STOCK
from fairseq_plugins.search.beam import LeanSearch
from fairseq_plugins.search.length_penalty import in_gnmt_form
from fairseq_plugins.search.step_graphs import StepGraphs
from fairseq_plugins.wrapping import replace_settings, wrap

LEAN = "lean"
FORMS, SEARCHES = (STOCK, GNMT), (LEAN, STOCK)
KNOWN = (LeanSearch, SequenceGenerator, SequenceGeneratorWithAlignment, SequenceScorer)
"""Searches that take a length penalty of the GNMT form."""

logger = logging.getLogger(__name__)


@dataclass
class GenerationConfigWithForm(GenerationConfig):
    """fairseq's settings of a search, the form of the length penalty, and the search itself."""

    lenpen_form: ChoiceEnum(FORMS) = field(  # type: ignore[valid-type]
        default=STOCK,
        metadata={
            "help": "form of the length penalty: fairseq divides the sum of log-probabilities by length ** lenpen, "
            "gnmt by ((5 + length) / 6) ** lenpen (Wu et al., 2016, equation 14)"
        },
    )
    search: ChoiceEnum(SEARCHES) = field(  # type: ignore[valid-type]
        default=LEAN,
        metadata={
            "help": "lean: beam search with fairseq's results for less time and memory; fairseq: fairseq's own. "
            "Sampling, diverse search, constraints and alignments are fairseq's in either case"
        },
    )
    no_search_graphs: bool = field(
        default=False,
        metadata={"help": "do not let the lean search on a GPU launch each step of a decoder at once, as a CUDA graph"},
    )


def choice(settings: Any, name: str, legal: Sequence[str]) -> str:
    """Return a legal value of a setting of a search, ``legal[0]`` if it is unset, as in older checkpoints."""
    value = str(getattr(settings, name, legal[0]))
    if value not in legal:
        raise UserError(unknown_name(flag(name), value, legal))
    return value


def build_search(
    build: Callable[..., Any],
    task: FairseqTask,
    models: Any,
    args: Any,
    seq_gen_cls: type | None = None,
    extra_gen_cls_kwargs: dict[str, Any] | None = None,
    prefix_allowed_tokens_fn: Callable[..., Any] | None = None,
) -> Any:
    """``FairseqTask.build_generator`` that applies ``args.search`` and ``args.lenpen_form``.

    Raises:
        UserError: the value is unknown, or the search cannot use it.
    """
    form = choice(args, "lenpen_form", FORMS)
    search = choice(args, "search", SEARCHES)
    alpha = float(getattr(args, "lenpen", 1))
    if form == GNMT:
        logger.info(f"length penalty of the GNMT form: ((5 + length) / 6) ** {alpha:g}, the end mark counted")
    aligned = getattr(args, "print_alignment", None)
    if search == LEAN and (seq_gen_cls is SequenceGenerator or not (seq_gen_cls or aligned)):
        seq_gen_cls = LeanSearch
    generator = build(task, models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn)
    if form == GNMT and type(generator) in KNOWN:
        in_gnmt_form(generator, alpha)
    # Without graphs where there is no such setting, as in a validation in training.
    if isinstance(generator, LeanSearch) and not getattr(args, "no_search_graphs", True):
        generator.graphs = [StepGraphs() for _ in generator.model.models]
    return generator


def build_or_refuse(
    build: Callable[..., Any], task: FairseqTask, models: Any, args: Any, *further: Any, **named: Any
) -> Any:
    """``build_generator``; a UserError if it makes a search without the GNMT form, or a task's own ignores that."""
    form = choice(args, "lenpen_form", FORMS)
    generator = build(task, models, args, *further, **named)
    if form == GNMT and not hasattr(generator, "gnmt_alpha"):
        raise UserError(
            f"--lenpen-form {GNMT}: {type(task).__name__} searches with {type(generator).__name__}, which knows only "
            "its own length penalty; drop --lenpen-form"
        )
    return generator


def initialise_watched(initialise: Callable[..., None], task: FairseqTask, *given: Any, **named: Any) -> None:
    """``FairseqTask.__init__`` that wraps each ``build_generator`` of a task in :func:`build_or_refuse`.

    When a task is instantiated its class is complete, however late it was registered.
    """
    for owner in type(task).__mro__:
        if "build_generator" in vars(owner):
            wrap(owner, "build_generator", build_or_refuse)
    initialise(task, *given, **named)


def refuse_in_training(initialise: Callable[..., None], trainer: Trainer, cfg: Any, *given: Any, **named: Any) -> None:
    """``Trainer.__init__`` that reads the keys of ``eval_bleu_args``.

    Raises:
        UserError: a key is unknown.
    """
    task = getattr(cfg, "task", None)
    asked = json.loads(getattr(task, "eval_bleu_args", None) or "{}") if getattr(task, "eval_bleu", False) else {}
    legal = [setting.name for setting in fields(GenerationConfigWithForm)]
    if unknown := [unknown_name("key of eval_bleu_args", name, legal) for name in asked if name not in legal]:
        raise UserError(unknown)
    initialise(trainer, cfg, *given, **named)


replace_settings("generation", GenerationConfigWithForm)
wrap(FairseqTask, "build_generator", build_search, order=10)
wrap(FairseqTask, "__init__", initialise_watched)
wrap(Trainer, "__init__", refuse_in_training, order=50)
