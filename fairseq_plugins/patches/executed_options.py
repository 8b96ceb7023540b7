"""Values of options are run as Python: a line of a YAML file, or of ``--model-overrides``, can start any program.

fairseq calls ``eval`` on what should be a number, a list or a dictionary. Here such a value is only calculated.
https://github.com/facebookresearch/fairseq/issues/4869
"""

from __future__ import annotations

import ast
from importlib import import_module
from typing import Any

from fairseq_plugins.errors import UserError

MODULES: tuple[str, ...] = (
    "fairseq.criterions.ctc",
    "fairseq.data.audio.raw_audio_dataset",
    "fairseq.data.codedataset",
    "fairseq.models.fconv",
    "fairseq.models.fconv_lm",
    "fairseq.models.fconv_self_att",
    "fairseq.models.hubert.hubert",
    "fairseq.models.lightconv_lm",
    "fairseq.models.speech_to_text.s2t_wav_transformer",
    "fairseq.models.transformer_lm",
    "fairseq.models.wav2vec.wav2vec",
    "fairseq.models.wav2vec.wav2vec2",
    "fairseq.optim.adafactor",
    "fairseq.optim.adam",
    "fairseq.optim.adamax",
    "fairseq.optim.cpu_adam",
    "fairseq.optim.fused_lamb",
    "fairseq.utils",
    "fairseq_cli.eval_lm",
    "fairseq_cli.validate",
)
"""Every module of fairseq that calls ``eval``."""
VALUES = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load)
# Layers are written as [(512, 3)] * 20 + [(512, 2)].
CALCULATIONS = (ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UAdd, ast.USub)


def calculated(text: str) -> Any:
    """The value of ``text``: numbers, text, lists, tuples and dictionaries, added and multiplied.

    Raises:
        UserError: it is something else.
        TypeError: it is no text, as ``eval`` raises it.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        if all(isinstance(node, (*VALUES, *CALCULATIONS)) for node in ast.walk(tree)):
            return eval(compile(tree, "<option>", "eval"), {"__builtins__": {}})
        reason = ""
    except (SyntaxError, ArithmeticError, TypeError, ValueError, RecursionError, MemoryError) as error:
        reason = f": {error}"
    raise UserError(f"{text!r} is neither a number nor a list or dictionary of numbers and text{reason}")


def apply() -> None:
    """Hide the builtin from the modules that call it."""
    for name in MODULES:
        import_module(name).__dict__["eval"] = calculated
