"""fairseq reports many a mistake of the user with a stack trace that names neither the file nor what to do.

:data:`MESSAGES` has a line for each. A command that fails looks it up at its end, and so do stock fairseq's
commands with the user directory. What is not in the table keeps its trace.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fairseq.distributed import utils as distributed_utils

from fairseq_plugins.errors import EXPLANATIONS, UserError, nearest
from fairseq_plugins.patches.wrapping import wrap
from fairseq_plugins.process import users_mistake

Line = Callable[[re.Match[str], Mapping[str, Any]], "str | None"]


@dataclass(frozen=True)
class Message:
    """One row of the table.

    Args:
        where: module and function that are in the trace, as in ``fairseq.utils:split_paths``; empty for any.
        pattern: regular expression that the text of the error matches.
        line: the line, from the match and the local variables of that function; None where the row does not apply.
        kinds: classes of the error.
    """

    where: str
    pattern: str
    line: Line
    kinds: type[BaseException] | tuple[type[BaseException], ...] = Exception


def not_binarised(_found: re.Match[str], local: Mapping[str, Any]) -> str:
    """Return the line for a directory whose file names do not say the languages, such as one of raw text."""
    directory = local["paths"][0]
    raw = [path.name for path in sorted(Path(directory).glob("train.*")) if path.suffix not in (".bin", ".idx")]
    if raw:
        return (
            f"{directory}: holds raw text ({', '.join(raw[:2])}), not binarised data: binarise it with "
            "`fairseq-deep preprocess` or `fairseq-deep prepare`, and give the directory that this makes"
        )
    return f"{directory}: holds no binarised data with the languages in its file names; give -s and -t, or another DIR"


def no_such_split(found: re.Match[str], _local: Mapping[str, Any]) -> str | None:
    """Return the line for an unknown part of binarised data, with the parts that exist."""
    split, place = found.groups()
    # Some tasks name the set itself.
    directory = Path(place) if Path(place).is_dir() else Path(place).parent
    splits = sorted({path.name.partition(".")[0] for path in directory.glob("*.idx")})
    return (
        f"{directory}: holds no set '{split}'{nearest(split, splits)}; it holds: {', '.join(splits)}"
        if splits
        else None
    )


def no_path(_found: re.Match[str], local: Mapping[str, Any]) -> str | None:
    """Return the line for a command without a model."""
    missing = local["cfg"].common_eval.path is None
    return "--path is required: the checkpoint of the model, or several with colons between them" if missing else None


def no_task(_found: re.Match[str], local: Mapping[str, Any]) -> str | None:
    """Return the line for ``fairseq-validate`` without a task, which has no default there."""
    return "--task is required, as in --task translation" if getattr(local.get("args"), "task", "") is None else None


MESSAGES: tuple[Message, ...] = (
    Message("fairseq.tasks.translation:setup_task", "^Could not infer language pair", not_binarised),
    Message("", r"^Dataset not found: (\S+) \((.+)\)", no_such_split, FileNotFoundError),
    Message("fairseq_cli.interactive:main", "NoneType", no_path, TypeError),
    Message("fairseq_cli.validate:main", "NoneType", no_path, TypeError),
    Message("fairseq_cli.eval_lm:main", "NoneType", no_path, TypeError),
    Message("fairseq.options:parse_args_and_arch", "^None$", no_task, KeyError),
)


def locals_of(trace: TracebackType | None, where: str) -> Mapping[str, Any] | None:
    """Return the local variables of the last call of ``where`` in a trace; None if it is not there."""
    found: Mapping[str, Any] | None = None if where else {}
    while trace is not None:
        frame = trace.tb_frame
        if f"{frame.f_globals.get('__name__')}:{frame.f_code.co_name}" == where:
            found = frame.f_locals
        trace = trace.tb_next
    return found


def explain(error: BaseException) -> UserError | None:
    """Return the line of :data:`MESSAGES` for ``error``; None if it has none."""
    for message in MESSAGES:
        found = re.search(message.pattern, str(error))
        if found and isinstance(error, message.kinds):
            local = locals_of(error.__traceback__, message.where)
            line = None if local is None else message.line(found, local)
            if line:
                return UserError(line)
    return None


def run_or_explain(main: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run the main function of a command, here or in a process that is a rank of it: processes pass on only text.

    Raises:
        UserError: the user can fix what has failed.
    """
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


def apply() -> None:
    """Let the end of every command ask :func:`explain`, and wrap the start of every command."""
    if explain not in EXPLANATIONS:
        EXPLANATIONS.append(explain)
    wrap(distributed_utils, "call_main", call_main_explained, order=10)
