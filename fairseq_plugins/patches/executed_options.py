"""Values of options are run as Python: a line of a YAML file, or of ``--model-overrides``, can start any program.

fairseq calls ``eval`` on a value that should be a number, a list or a dictionary. Here the value is only calculated. A
program after each checkpoint is refused. The path of an LM data directory with ``train.fasta`` is one word of a shell.
https://github.com/facebookresearch/fairseq/issues/4869
"""

import ast
import os
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from fairseq.data import FastaDataset
from fairseq.tasks.audio_pretraining import AudioPretrainingTask

from fairseq_plugins.errors import UserError

NOT_IMPORTED = ("fairseq_cli.eval_lm", "fairseq_cli.validate")
"""Modules that call ``eval``, and that are not imported with fairseq."""
VALUES = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load)
# Layers are written as [(512, 3)] * 20 + [(512, 2)].
CALCULATIONS = (ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UAdd, ast.USub)


def calculated(text: str) -> Any:
    """The value of ``text``: numbers, text, lists, tuples and dictionaries, added and multiplied; else a UserError.

    A TypeError if it is not a string, as ``eval`` raises it.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a string")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        if all(isinstance(node, (*VALUES, *CALCULATIONS)) for node in ast.walk(tree)):
            return eval(compile(tree, "<option>", "eval"), {"__builtins__": {}})
        reason = ""
    except (SyntaxError, ArithmeticError, TypeError, ValueError, RecursionError, MemoryError) as error:
        reason = f": {error}"
    raise UserError(f"{text!r} is neither a number nor a list or dictionary of numbers and text{reason}")


def refuse_program(make: Callable[..., None], self: AudioPretrainingTask, cfg: Any) -> None:
    """``__init__`` of a task, which may name a program, or raise a UserError."""
    if getattr(cfg, "post_save_script", None) is not None:
        raise UserError(f"task.post_save_script: '{cfg.post_save_script}' is not run; run it after the training")
    make(self, cfg)


def quote_path(index: Callable[..., Any], self: FastaDataset, path: str) -> Any:
    """``_build_index``, which puts ``path`` into a command; absolute, so that it begins with no dash."""
    return index(self, shlex.quote(os.path.abspath(path)))


WRAPPED = ((AudioPretrainingTask, "__init__", refuse_program), (FastaDataset, "_build_index", quote_path))


def apply() -> None:
    """Hide the builtin from every module of fairseq."""
    for name in NOT_IMPORTED:
        import_module(name)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli"):
            vars(module)["eval"] = calculated
