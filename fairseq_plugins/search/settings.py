"""The setting ``lenpen_form``: a flag of commands that translate, a key of ``generation`` and of ``eval_bleu_args``.

fairseq has no registry for the scores of a search, and a task of this package would be one task among thirty. So the
class that declares the settings of a search gets one more, and the method by which tasks build their search is wrapped.
Neither has an effect unless ``gnmt`` is set.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of a dataclass, not of their names.

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq import options
from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.dataclass.constants import ChoiceEnum
from fairseq.dataclass.initialize import hydra_init
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap
from fairseq_plugins.search import lean
from fairseq_plugins.search.length_penalty import (
    GNMTRanking,
    GNMTSequenceGenerator,
    GNMTSequenceGeneratorWithAlignment,
    GNMTSequenceScorer,
    checked_alpha,
)

STOCK, GNMT = "fairseq", "gnmt"
FORMS: Any = ChoiceEnum([STOCK, GNMT])
IN_GNMT_FORM: Mapping[type, type] = {
    SequenceGenerator: GNMTSequenceGenerator,
    SequenceGeneratorWithAlignment: GNMTSequenceGeneratorWithAlignment,
}
"""The search in the GNMT form for each search of fairseq."""

logger = logging.getLogger(__name__)


@dataclass
class GenerationConfigWithForm(GenerationConfig):
    """fairseq's settings of a search, the form of the length penalty, the search itself and its precision."""

    lenpen_form: FORMS = field(
        default=STOCK,
        metadata={
            "help": "form of the length penalty: fairseq divides the sum of log-probabilities by length ** lenpen, "
            "gnmt by ((5 + length) / 6) ** lenpen (Wu et al., 2016, equation 14)"
        },
    )
    search: ChoiceEnum(lean.SEARCHES) = field(  # type: ignore[valid-type]
        default=lean.LEAN,
        metadata={
            "help": "lean: beam search with fairseq's results for less time and memory; fairseq: fairseq's own. "
            "Sampling, diverse search and constraints are fairseq's in either case"
        },
    )
    decode_precision: ChoiceEnum(lean.PRECISIONS) = field(  # type: ignore[valid-type]
        default=lean.FLOAT32,
        metadata={
            "help": "of the linear maps while translating on a CPU; float32_packed is float32 with weights in another "
            "order, faster; bf16 and int8 are faster still and not exact"
        },
    )


def form_of(settings: Any) -> str:
    """Return the form in the settings of a search; fairseq's if it is unset, as in older checkpoints.

    Raises:
        UserError: there is no such form.
    """
    return lean.choice(settings, "lenpen_form", (STOCK, GNMT))


def build_in_form(
    build: Callable[..., Any],
    task: FairseqTask,
    models: Any,
    args: Any,
    seq_gen_cls: type | None = None,
    extra_gen_cls_kwargs: dict[str, Any] | None = None,
    prefix_allowed_tokens_fn: Callable[..., Any] | None = None,
) -> Any:
    """``FairseqTask.build_generator`` that applies ``args.lenpen_form``.

    Raises:
        UserError: other settings contradict it, or the task has its own search.
    """
    if form_of(args) == STOCK:
        return build(task, models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn)
    alpha = checked_alpha(getattr(args, "lenpen", 1), not getattr(args, "unnormalized", False))
    logger.info(f"length penalty of the GNMT form: ((5 + length) / 6) ** {alpha:g}, the end mark counted")
    if getattr(args, "score_reference", False):
        alignment = getattr(args, "print_alignment", None) or False
        return GNMTSequenceScorer(task.target_dictionary, alpha, compute_alignment=alignment)
    seq_gen_cls, extra = lean.with_alignment(args, seq_gen_cls, extra_gen_cls_kwargs)
    if seq_gen_cls not in IN_GNMT_FORM:
        raise UserError(_other_search(task, seq_gen_cls))
    return build(task, models, args, IN_GNMT_FORM[seq_gen_cls], extra, prefix_allowed_tokens_fn)


def build_or_refuse(
    build: Callable[..., Any], task: FairseqTask, models: Any, args: Any, *further: Any, **named: Any
) -> Any:
    """The ``build_generator`` of a task that has its own, which may never reach :func:`build_in_form`.

    Raises:
        UserError: it did not, so the form would be ignored.
    """
    form = form_of(args)
    generator = build(task, models, args, *further, **named)
    if form == GNMT and not isinstance(generator, (GNMTRanking, GNMTSequenceScorer)):
        raise UserError(_other_search(task, type(generator)))
    return generator


def _other_search(task: FairseqTask, search: type) -> str:
    return (
        f"--lenpen-form {GNMT}: {type(task).__name__} searches with {search.__name__}, which knows only its own length "
        "penalty; drop --lenpen-form"
    )


def initialise_watched(initialise: Callable[..., None], task: FairseqTask, *given: Any, **named: Any) -> None:
    """``FairseqTask.__init__`` that wraps a task's own ``build_generator`` in :func:`build_or_refuse`.

    When a task is instantiated its class is complete, whoever registered it and however late.
    """
    for owner in type(task).__mro__:
        if owner is not FairseqTask and "build_generator" in vars(owner):
            wrap(owner, "build_generator", build_or_refuse)
    initialise(task, *given, **named)


def refuse_in_training(initialise: Callable[..., None], trainer: Trainer, cfg: Any, *given: Any, **named: Any) -> None:
    """``Trainer.__init__`` that refuses a form in ``generation`` which the BLEU of validation does not follow.

    A configuration may carry the search that its model is evaluated with; a training reads ``eval_bleu_args`` only.

    Raises:
        UserError: the training would translate in fairseq's form during validation, although GNMT's is set; or its
            weights would be lowered for decoding, and could not be trained.
    """
    precision = _of_validation(getattr(cfg, "task", None)).get("decode_precision", lean.FLOAT32)
    if precision != lean.FLOAT32:
        raise UserError(
            f"decode_precision {precision} of eval_bleu_args replaces the weights that are to be trained: drop it"
        )
    if form_of(getattr(cfg, "generation", None)) == GNMT and _translates_in_form(getattr(cfg, "task", None)) == STOCK:
        raise UserError(
            f"generation.lenpen_form={GNMT} is not read in validation: "
            f'write "lenpen_form": "{GNMT}" into task.eval_bleu_args as well'
        )
    initialise(trainer, cfg, *given, **named)


def _translates_in_form(task: Any) -> str | None:
    """Return the form in which validation translates; None if it does not translate."""
    if not getattr(task, "eval_bleu", False):
        return None
    return str(_of_validation(task).get("lenpen_form", STOCK))


def _of_validation(task: Any) -> dict[str, Any]:
    """Return the settings of the search of validation."""
    if not getattr(task, "eval_bleu", False):
        return {}
    found: dict[str, Any] = json.loads(getattr(task, "eval_bleu_args", None) or "{}")
    return found


def register() -> None:
    """Register ``lenpen_form`` with fairseq; a second call changes nothing."""
    # fairseq makes flags from the first and the configuration from the second; Hydra has a copy, which is updated.
    options.GenerationConfig = GenerationConfigWithForm
    declared = FairseqConfig.__dataclass_fields__["generation"]
    declared.type = declared.default = GenerationConfigWithForm
    hydra_init()
    wrap(FairseqTask, "build_generator", build_in_form, order=10)
    wrap(FairseqTask, "build_generator", lean.build_lean, order=20)
    wrap(FairseqTask, "__init__", initialise_watched)
    wrap(Trainer, "__init__", refuse_in_training, order=50)
