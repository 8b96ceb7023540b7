"""A model on one test set: its translations or its perplexity, their scores and the signature, each a file.

Tasks, batches and models are the same as in ``fairseq-generate`` and ``fairseq-eval-lm``.
"""

import functools
import json
import logging
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data.data_utils import post_process
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging.progress_bar import progress_bar
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY, setup_task
from fairseq.utils import resolve_max_positions, strip_pad
from fairseq_cli.eval_lm import eval_lm
from omegaconf import OmegaConf

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.records import read_json
from fairseq_plugins.sums import checksum
from fairseq_plugins.tools.decoder import Hypothesis, TaskDecoder
from fairseq_plugins.tools.pipeline.checkout import commit
from fairseq_plugins.tools.pipeline.corpus import TestSet
from fairseq_plugins.tools.pipeline.decoding import SEARCH, DecodePlan
from fairseq_plugins.tools.pipeline.results import (
    HYPOTHESES,
    REFERENCES,
    SCORE_TABLE,
    SCORES,
    SELF_CHECK,
    SIGNATURE,
    TOKENISED_REFERENCES,
    TOKENS,
)
from fairseq_plugins.tools.pipeline.workspace import Workspace

MULTIPLE = 8
"""fairseq's default of ``--required-batch-size-multiple``."""
LOG = "generate.log"


class Translated(NamedTuple):
    """A sentence of a test set and its best translation.

    Attributes:
        number: of the sentence in the test set, from 0.
        source: its tokens with joined subwords; None for speech.
        reference: the binarised reference with joined subwords; unknown words are ``<<unk>>``.
        hypothesis: the translation in the model's units.
        joined: the translation with joined subwords.
        text: ``joined`` as the task undoes its own units.
    """

    number: int
    source: str | None
    reference: str
    hypothesis: Hypothesis
    joined: str
    text: str

    def lines(self) -> Iterator[str]:
        """Yield the lines that ``fairseq-generate`` prints of it, with its logarithms of base 2."""
        score, scores = (
            torch.tensor(value) / math.log(2) for value in (self.hypothesis.score, self.hypothesis.token_scores)
        )
        if self.source is not None:
            yield f"S-{self.number}\t{self.source}"
        yield f"T-{self.number}\t{self.reference}"
        yield f"H-{self.number}\t{score}\t{self.joined}"
        yield f"D-{self.number}\t{score}\t{self.text}"
        yield f"P-{self.number}\t{' '.join(f'{value:.4f}' for value in scores.tolist())}"


def evaluate_set(plan: DecodePlan, test_set: TestSet, model: Path, workspace: Workspace) -> None:
    """Translate and score one test set, or score it with a language model; write the signature. Each file is whole."""
    place, make = workspace.directory, workspace.make
    if plan.search:
        make(place / TOKENS, lambda target: write_translations(plan, test_set, model, target))
        references, before = list(read_lines(test_set.published)), place / REFERENCES
        if (place / SCORES).exists() and before.exists() and list(read_lines(before)) != references:
            raise UserError(f"{place}: scored against other references than {test_set.published}; delete it")
        make(place / SCORES, lambda target: write_scores(plan, references, target))
    else:
        make(place / SCORES, lambda target: write_perplexity(plan, test_set, model, target))
    make(place / SIGNATURE, lambda target: sign(plan, model, place, target))
    for name in (SCORE_TABLE, SIGNATURE):
        print((place / name).read_text(encoding="utf-8"), end="", flush=True)


def task_of(plan: DecodePlan) -> Any:
    """Return fairseq's task of a plan; its other settings are the defaults of ``fairseq-generate``."""
    config, settings = OmegaConf.structured(FairseqConfig), {"data": str(plan.binarised), **plan.task_settings}
    if plan.task in TASK_DATACLASS_REGISTRY:
        config.task = TASK_DATACLASS_REGISTRY[plan.task](_name=plan.task, **settings)
        return setup_task(config.task)
    # The task of speech has its settings as flags only.
    flags = ArgumentParser()
    TASK_REGISTRY[plan.task].add_args(flags)
    defaults = vars(flags.parse_args([str(plan.binarised.resolve())]))
    return setup_task(Namespace(**{**defaults, **settings, "task": plan.task, "seed": config.common.seed}))


def unit_joiner(task: Any) -> Callable[[str], str]:
    """Return the function that makes text of a line in the units of a task that has units of its own."""
    steps = [step for step in (task.build_bpe(None), task.build_tokenizer(None)) if step is not None]
    return lambda line: functools.reduce(lambda text, step: step.decode(text), steps, line)


def translate(plan: DecodePlan, test_set: TestSet, checkpoint: Path) -> list[Translated]:
    """Return the best translation of each sentence, in the order of the test set.

    Raises:
        UserError: a sentence was not translated exactly once.
    """
    task = task_of(plan)
    model, config = _loaded(plan, checkpoint, task)
    task.load_dataset(test_set.subset, task_cfg=config.task)
    model.make_generation_fast_(need_attn=False)
    subwords, plain = plan.text.subwords if plan.text else None, unit_joiner(task)
    decoder, source, target = TaskDecoder(task, model, plan.search), task.source_dictionary, task.target_dictionary
    marks = getattr(decoder.generator, "symbols_to_strip_from_output", {decoder.generator.eos})
    unspoken = {target[number] for number in {*marks, target.bos()}}

    def string(words: Any, row: torch.Tensor, **options: Any) -> str:
        return plain(words.string(strip_pad(row, target.pad()), subwords, **options))

    # A sentence that is too long for the model is an error.
    batches = task.get_batch_iterator(
        task.dataset(test_set.subset),
        max_tokens=plan.max_tokens,
        max_positions=resolve_max_positions(task.max_positions(), model.max_positions()),
        required_batch_size_multiple=MULTIPLE,
    )
    lines = []
    for sample in _with_progress(batches.next_epoch_itr(shuffle=False)):
        for place, [hypothesis] in enumerate(decoder(sample)):
            joined = post_process(" ".join(token for token in hypothesis.tokens if token not in unspoken), subwords)
            translated = Translated(
                int(sample["id"][place]),
                string(source, sample["net_input"]["src_tokens"][place]) if source else None,
                string(target, sample["target"][place], escape_unk=True, extra_symbols_to_ignore=marks),
                hypothesis,
                joined,
                plain(joined),
            )
            lines.append(translated)
    numbers, count = sorted(line.number for line in lines), len(task.dataset(test_set.subset))
    if numbers != list(range(count)):
        counts = f"{len(numbers)} translations of {len(set(numbers))} sentences"
        raise UserError(f"{plan.binarised}: {test_set.subset}: {counts}, but it has {count}")
    return sorted(lines)


def write_translations(plan: DecodePlan, test_set: TestSet, model: Path, target: Path) -> None:
    """Write the translations of a test set in its order, without subwords, next to its references and a log."""
    lines = translate(plan, test_set, model)
    tokenised = test_set.tokenised
    references = list(read_lines(tokenised)) if tokenised else [line.reference for line in lines]
    write_lines(target.with_name(LOG), [row for line in lines for row in line.lines()])
    write_lines(target.with_name(TOKENISED_REFERENCES), references)
    write_lines(target, [line.text for line in lines])


def perplexity(plan: DecodePlan, test_set: TestSet, checkpoint: Path) -> tuple[float, int]:
    """Return the bits per token of a text under a language model, and the number of its tokens."""
    task = task_of(plan)
    model, _ = _loaded(plan, checkpoint, task)
    model.make_generation_fast_()
    task.load_dataset(test_set.subset)
    batches = task.eval_lm_dataloader(
        task.dataset(test_set.subset),
        max_tokens=plan.max_tokens,
        max_positions=model.max_positions(),
        num_workers=0,
        context_window=plan.context_window,
    )
    samples, words, starts = list(batches), task.target_dictionary, task.args.add_bos_token
    result = eval_lm([model], words, _with_progress(samples), target_dictionary=words, remove_bos_token=starts)
    # The mark at the beginning of a sample is counted there, but not scored.
    return float(result["loss"]), sum(sample["ntokens"] - starts * sample["nsentences"] for sample in samples)


def write_perplexity(plan: DecodePlan, test_set: TestSet, model: Path, target: Path) -> None:
    """Score a text with a language model; write its scores as a table next to ``target``, and as JSON to ``target``.

    Bits per byte (bits of the whole text over its bytes) are comparable between different tokens.
    """
    bits, count = perplexity(plan, test_set, model)
    how = f"eval-lm|tokens:{count}"
    values = [("perplexity", math.inf if bits >= 1024 else 2**bits, how), ("bits per token", bits, how)]
    if test_set.published.is_file():
        size = test_set.published.stat().st_size
        values.append(("bits per byte", bits * count / size, f"{how}|bytes:{size}"))
    write_lines(
        target.with_name(SCORE_TABLE), [f"{name:<16}{value:.4f}  {signature}" for name, value, signature in values]
    )
    names = ("name", "value", "signature", "higher_is_better")
    metrics = [dict(zip(names, (*metric, False), strict=True)) for metric in values]
    write_whole(target, json.dumps({"tokens": count, "metrics": metrics}, indent=1) + "\n")


def _loaded(plan: DecodePlan, checkpoint: Path, task: Any) -> tuple[Any, Any]:
    """Return the model of a checkpoint, and its configuration."""
    [model], config, _ = load_model_ensemble_and_task([str(checkpoint)], task=task)
    return (model.cuda() if plan.on_gpu else model).eval(), config


def _with_progress(batches: Any) -> Any:
    """Return an iterator that shows its progress on a terminal."""
    return progress_bar(batches, log_format="tqdm" if sys.stderr.isatty() else "none")


def write_scores(plan: DecodePlan, references: Sequence[str], target: Path) -> None:
    """Write plain text and its scores as a table next to ``target``, and as JSON to ``target``; print warnings."""
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
    write_whole(target.with_name(SCORE_TABLE), as_text(scores))
    write_whole(target, as_json(scores))


def _read(path: Path) -> list[str]:
    """The lines of a file of this module; U+FEFF at its beginning is text, and no byte order mark."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


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
        **{name.replace("_", "-"): plan.search.get(name) for name in SEARCH},
        "sentences": scores.get("sentences"),
        "accepted": "_".join(check["accepted"].split()),
        "score": metrics[0]["signature"] if metrics else None,
    }
    write_whole(target, " ".join(f"{name}:{value}" for name, value in parts.items() if value not in (None, "")) + "\n")
