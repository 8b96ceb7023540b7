"""fairseq reports many user errors with a stack trace that names neither the file nor what to do.

:data:`MESSAGES` has a line for each that fairseq itself does not explain. A command that fails looks it up at its end,
and so do stock fairseq's commands with the user directory. An error without a line keeps its trace.

``fairseq-hydra-train`` reports all mistakes with Hydra's trace and exit code 1: Hydra catches each error of a job and
raises it again when the job's result is read, inside a handler that prints a trace (``run_and_report`` of hydra 1.3); a
``SystemExit`` passes that handler. https://github.com/facebookresearch/hydra/issues/3361
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from hydra.core.utils import JobReturn

from fairseq_plugins.checkpoints.provenance import other_weights
from fairseq_plugins.errors import EXPLANATIONS, UserError, flag, nearest, report, unknown_name
from fairseq_plugins.lines import OVERWRITE, read_lines
from fairseq_plugins.process import users_mistake

SHOWN = 80
"""Characters of a line of a file in a message; a text in place of a dictionary may have lines of any length."""

LineMaker = Callable[[Mapping[str, Any]], "str | None"]


@dataclass(frozen=True)
class Message:
    """One row of the table.

    Args:
        where: regular expression of module and function in the trace, as in ``fairseq.utils:split_paths``; empty for
            any.
        pattern: regular expression that the text of the error matches.
        line: the line with names in braces, or a function that returns it, or None to skip the row; the names are
            local variables at ``where``, ``match`` and ``error``.
        kinds: classes of the error.
    """

    where: str
    pattern: str
    line: str | LineMaker
    kinds: type[BaseException] | tuple[type[BaseException], ...] = Exception


# --- options and data -----------------------------------------------------------------------------------------------


def not_binarised(local: Mapping[str, Any]) -> str:
    """Return the line for a directory whose file names do not say the languages, such as one of raw text."""
    directory = local["paths"][0]
    raw = [path.name for path in sorted(Path(directory).glob("train.*")) if path.suffix not in (".bin", ".idx")]
    if raw:
        return (
            f"{directory}: holds raw text ({', '.join(raw[:2])}), not binarised data: binarise it with "
            "`fairseq-deep preprocess` or `fairseq-deep prepare`, and give the directory that this makes"
        )
    return f"{directory}: holds no binarised data with the languages in its file names; give -s and -t, or another DIR"


def no_such_split(local: Mapping[str, Any]) -> str | None:
    """Return the line for an unknown part of binarised data, with the parts that exist."""
    split, place = local["match"].groups()
    # Some tasks name the set itself.
    directory = Path(place) if Path(place).is_dir() else Path(place).parent
    splits = sorted({path.name.partition(".")[0] for path in directory.glob("*.idx")})
    if not splits:
        return None
    return f"{directory}: holds no set '{split}'{nearest(split, splits)}; it holds: {', '.join(splits)}"


def long_sentence(local: Mapping[str, Any]) -> str:
    """Return the line for a sentence that is too long for the model; it counts from 1, as editors count lines."""
    number, tokens, positions = local["match"].groups()
    # Such as 12, (12, 9) or (np.int64(12), np.int64(9)); a line of text has 0 target tokens.
    tokens, positions = (
        " and ".join(size for size in re.findall(r"\d+(?=[,)]|$)", sizes) if size != "0")
        for sizes in (tokens, positions)
    )
    return (
        f"sentence {local.get('start_id', 0) + int(number) + 1} has {tokens} tokens with the end mark, at "
        f"most {positions} are possible with this model and its --max-source-positions and "
        "--max-target-positions; shorten it; fairseq's commands skip it with --skip-invalid-size-inputs-valid-test"
    )


def no_room(local: Mapping[str, Any]) -> str:
    """Return the line for a ``--max-tokens`` that does not hold the longest sentence."""
    sizes, most = local["num_tokens_vec"], local["match"][1]
    longest = max(sizes if sizes is not None else map(local["num_tokens_fn"], local["indices"]))
    return (
        f"--max-tokens {most} is smaller than the longest sentence, which has {longest} tokens: use at least "
        f"--max-tokens {longest}; a training may leave out longer sentences with --max-source-positions {most} "
        f"--max-target-positions {most}"
    )


def fp16_on_cpu(local: Mapping[str, Any]) -> str | None:
    """Return the line for ``--fp16`` without a GPU, which fairseq's master weights and overflows need."""
    trainer = local.get("self")
    uses_gpu = torch.cuda.is_available() if trainer is None else trainer.cuda or not trainer.cfg.common.fp16
    if uses_gpu:  # its memory may be full, for example
        return None
    return (
        "--fp16 needs a GPU; on a CPU leave out --fp16 (in hydra-train add common.fp16=false), or give --bf16 instead"
    )


def other_task(local: Mapping[str, Any]) -> str | None:
    """Return the line for a criterion of other tasks or models; None unless its own code has failed."""
    error, chosen = local["error"], local["cfg"]
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    last = next(name for name in reversed(modules) if not name.startswith("torch."))
    if not last.startswith("fairseq.criterions."):
        return None
    names = f"--task {chosen.task._name} and --arch {chosen.model._name}"
    return f"--criterion {chosen.criterion._name} does not fit {names} ({type(error).__name__}: {error})"


# --- dictionaries ---------------------------------------------------------------------------------------------------


def broken_dictionary(local: Mapping[str, Any]) -> str | None:
    """Return the line that names file and line of a dictionary; None if fairseq has failed for another reason."""
    path = local["f"] if isinstance(local["f"], str) else local["f"].name
    seen: dict[str, int] = dict.fromkeys(Dictionary().symbols, 0)
    for number, text in enumerate(read_lines(Path(path)), start=1):
        line = text.rstrip()
        word, blank, count = line.removesuffix(OVERWRITE).rpartition(" ")
        if "\r" in line:
            return f"{path}: line {number}: carriage return inside the line, where fairseq splits it; remove it"
        if not blank or not re.fullmatch(r"[+-]?\d+", count):
            tab = ", separated by a space, not a tab" if "\t" in line else ""
            return f"{path}: line {number}: '{line[:SHOWN]}' is not a word and its count{tab}"
        if word in seen and not line.endswith(OVERWRITE):
            where = f"is in line {seen[word]} already" if seen[word] else "is one that fairseq adds itself"
            return f"{path}: line {number}: the word '{word}' {where}; remove it"
        seen[word] = number
    return None


# --- checkpoints ----------------------------------------------------------------------------------------------------


def other_model(local: Mapping[str, Any]) -> str | None:
    """Return the line for a checkpoint that cannot be loaded; a training replaces every reason by one sentence."""
    reason = local["error"] if isinstance(local["error"], RuntimeError) else local["error"].__context__
    return str(reason) if isinstance(reason, UserError) else other_weights(local["filename"], str(reason))


NO_PATH = "--path is required: the checkpoint of the model, or several with colons between them"
NO_DATA = "task.data is not set: add +task.data=DIR to the command"
DECAY = (
    "--lr-scheduler polynomial_decay needs the number of updates over which it decays, above 0: use --max-update, or "
    "--total-num-update if the decay does not end with the training"
)
ONE_SEARCH = "--sampling, --diverse-beam-groups, --match-source-len and --diversity-rate exclude each other: give one"
NO_LENGTH = "--min-len is more than --max-len-a, --max-len-b and --max-target-positions allow"
LARGE_CUTOFF = (
    "--adaptive-input-cutoff or --adaptive-softmax-cutoff exceeds the {vocab_size} words of the dictionary: {cutoff}"
)
NO_DICTIONARY = "--model-overrides takes a dictionary such as {{'dropout': 0.1}}, not {cfg.common_eval.model_overrides}"
SUBWORD_OPTIONS = "value of --post-process, --remove-bpe or --eval-bleu-remove-bpe"
SUBWORDS = ("@@ ", "subword_nmt", "sentencepiece", "wordpiece", "letter", "silence", "_EOW", "none")
ALL_TOO_LONG = "no training sentence is within --max-source-positions and --max-target-positions: use larger limits"
NO_LANGUAGES = "--tokenizer needs the languages: give --source-lang and --target-lang"
OTHER_OPTIMIZER = (
    "{filename}: it was trained in another precision or with another optimizer: use the flags that it was trained "
    "with, or --reset-optimizer"
)
OLD_SCORER = "fairseq's scorer does not work with today's sacrebleu: use `fairseq-deep score`, or `sacrebleu` itself"
NO_FAIRSCALE = (
    "--zero-sharding os and --ddp-backend fully_sharded or slowmo need fairscale, which is not installed here"
)
NO_JSON = "--eval-bleu-args and --eval-bleu-detok-args take JSON such as '{{\"beam\": 4}}': {error}"
TWO_PRECISIONS = "--fp16 and --bf16 exclude each other: leave out one (a GPU before Ampere computes in fp16 alone)"
FP16_WEIGHTS = "--optimizer {cfg.optimizer._name} does not support --memory-efficient-fp16 and --memory-efficient-bf16"
OTHER_WIDTH = "{path}: its vectors have {match[2]} numbers, and the embeddings of this model {match[1]}"
UNUSED = "several processes need --find-unused-parameters where an update leaves weights out, as LayerDrop does"
NO_NUMBERS = (
    "the model's log-probabilities are not finite, so no translation ends: the weights, or their products, are not; "
    "fairseq-deep fsck checks the weights"
)
WIDTHS = r"^The expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)"
TOO_LONG = r"^Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip"
UNFIT = (AttributeError, KeyError, NotImplementedError, TypeError, ValueError)
SEARCHES = r"(fairseq.sequence_generator|fairseq_plugins.search.beam):\w+"
LOADING = "fairseq.checkpoint_utils:load_model_ensemble_and_task"
SCHEDULE = "fairseq.optim.lr_scheduler.polynomial_decay_schedule"
MESSAGES: tuple[Message, ...] = (
    Message("fairseq.tasks.translation:setup_task", "^Could not infer language pair", not_binarised),
    Message(
        "fairseq.tasks.translation:build_model", r"\(char \d+\)$|must be a mapping", NO_JSON, (ValueError, TypeError)
    ),
    Message("", r"^Dataset not found: (\S+) \((.+)\)", no_such_split, FileNotFoundError),
    Message(
        "fairseq_cli.(interactive|validate|eval_lm):main",
        "NoneType",
        lambda local: None if local["cfg"].common_eval.path else NO_PATH,
        (AttributeError, TypeError),
    ),
    Message("fairseq.utils:split_paths", "NoneType", NO_DATA, TypeError),
    Message(r"fairseq_cli.\w+:_?main", TOO_LONG, long_sentence),
    Message("", TOO_LONG, long_sentence),
    Message(
        r"fairseq_cli.\w+:_?main", r"^malformed node|\(<unknown>, line \d+\)$", NO_DICTIONARY, (SyntaxError, ValueError)
    ),
    Message("fairseq.tasks.fairseq_task:build_generator", "^Provided Search parameters", ONE_SEARCH, ValueError),
    Message(SEARCHES, r"^\d+ < \d+$", NO_NUMBERS, AssertionError),
    Message("", "^min_len cannot be larger than max_len", NO_LENGTH, AssertionError),
    Message(
        "fairseq.data.data_utils:post_process",
        "^Unknown post_process",
        lambda local: unknown_name(SUBWORD_OPTIONS, local["symbol"], SUBWORDS),
    ),
    Message(
        r"fairseq.data.encoders.\w+:__init__",
        r"^Missing mandatory value: (\w+)",
        lambda local: f"{flag(local['match'][1])} is required with this --bpe",
    ),
    Message("fairseq.data.data_utils:batch_by_size", r"should not exceed max_tokens=(\d+)", no_room, AssertionError),
    Message(r"fairseq.modules.adaptive_\w+:__init__", "^cannot specify cutoff larger", LARGE_CUTOFF, AssertionError),
    Message("fairseq.trainer:get_train_iterator", "^The dataset is empty", ALL_TOO_LONG),
    Message("", r"tokenizer\.source_lang=null", NO_LANGUAGES),
    Message(f"{SCHEDULE}:__init__", "^$", DECAY, AssertionError),
    Message("fairseq.options:parse_args_and_arch", "^Cannot combine --fp16 and --tpu", TWO_PRECISIONS),
    Message("fairseq.optim.fp16_optimizer:build_fp32_params|fairseq.trainer:train_step", "CUDA|NVIDIA", fp16_on_cpu),
    Message("fairseq.optim.fp16_optimizer:__init__", "^Unsupported optimizer", FP16_WEIGHTS, ValueError),
    Message(r"fairseq.models.transformer.\w+:build_embedding", WIDTHS, OTHER_WIDTH, RuntimeError),
    Message("", "^Expected to have finished reduction in the prior iteration", UNUSED, RuntimeError),
    Message("fairseq_cli.train:main", "", other_task, UNFIT),
    Message("fairseq.utils:import_user_module", r"^(?!\[Errno)", "no such --user-dir: {error}", FileNotFoundError),
    Message("", "install.* fairscale", NO_FAIRSCALE, ImportError),
    Message("fairseq_cli.score:cli_main", "", OLD_SCORER, TypeError),
    Message("fairseq.data.dictionary:add_from_file", "^(Incorrect|Duplicate word)", broken_dictionary),
    Message(LOADING, r"^Error\(s\) in loading state_dict", other_model, RuntimeError),
    Message("fairseq.trainer:load_checkpoint", "^Cannot load model parameters from checkpoint", other_model),
    Message("fairseq.trainer:load_checkpoint", "^Optimizer does not match|number of parameter groups", OTHER_OPTIMIZER),
    Message(LOADING, "^Model file not found: (.*)", "no such checkpoint: {match[1]}", OSError),
    # fairseq's own message about a model cannot be made without a name of the class.
    Message(
        "fairseq.models:build_model",
        "^Could not infer model type|^\"'_name'\"$",
        "the checkpoint's model '{model_type}' is unknown: give the --user-dir that defines it",
    ),
    Message(
        "fairseq.tasks:setup_task",
        "^Could not infer task type",
        "the checkpoint's task '{task_name}' is unknown: give the --user-dir that defines it",
        AssertionError,
    ),
)


def locals_of(trace: TracebackType | None, where: str) -> Mapping[str, Any] | None:
    """Return the local variables of the last call of ``where`` in a trace; None if it is not there."""
    variables: Mapping[str, Any] | None = None if where else {}
    for frame, _ in walk_tb(trace):
        if re.fullmatch(where, f"{frame.f_globals.get('__name__')}:{frame.f_code.co_name}"):
            variables = frame.f_locals
    return variables


def explain(error: BaseException) -> UserError | None:
    """Return the line of :data:`MESSAGES` for ``error``; None if it has none."""
    for message in MESSAGES:
        match = re.search(message.pattern, str(error))
        scope = locals_of(error.__traceback__, message.where) if match and isinstance(error, message.kinds) else None
        if scope is None:
            continue
        local, line = {**scope, "match": match, "error": error}, message.line
        try:
            if text := line.format_map(local) if isinstance(line, str) else line(local):
                return UserError(text)
        except UserError as worse:  # a file that cannot even be read
            return worse
    return None


def run_or_explain(main: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run the main function of a command, here or in a rank of it; a UserError for mistakes that the user can fix."""
    try:
        return main(*args, **kwargs)
    except Exception as error:
        mistake = users_mistake(error)
        if mistake is None or mistake is error:
            raise
        raise mistake from error


def call_main_explained(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    """``call_main`` of a ``main`` whose mistakes of the user are lines."""
    return call_main(cfg, functools.partial(run_or_explain, main), **kwargs)


STOCK_RESULT = vars(JobReturn)["return_value"]


def result_or_exit(job: JobReturn) -> Any:
    """``JobReturn.return_value`` of Hydra, where the job may have raised a mistake of the user."""
    raised = job._return_value
    mistake = users_mistake(raised) if isinstance(raised, Exception) else raised
    if isinstance(mistake, UserError):
        report(mistake)
        raise SystemExit(mistake.exit_code)
    return STOCK_RESULT.__get__(job)


WRAPPED = ((distributed_utils, "call_main", call_main_explained, 10),)


def apply() -> None:
    """Let the end of every command ask :func:`explain`, and replace the property that reads the result of a job."""
    if explain not in EXPLANATIONS:
        EXPLANATIONS.append(explain)
    JobReturn.return_value = property(result_or_exit, STOCK_RESULT.__set__)  # type: ignore[assignment, method-assign]
