"""A checkpoint of another architecture or dictionary is refused without saying what differs, or in a page of names.

``fairseq-train`` says "please ensure that the architectures match" and hides the reason; ``fairseq-generate`` prints
every name. Both now say how many weights are missing, surplus or of another shape, and name the first few.
https://github.com/facebookresearch/fairseq/issues/4590
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap

NAMED = 3
"""Maximum number of differing weights of each kind in a message."""
QUOTED = re.compile(r'"([^"]+)"')
SHAPES = re.compile(r"size mismatch for (\S+): copying a param with shape (.+?) from checkpoint, .* model is (.+?)\.\s")


def _first(names: Sequence[str]) -> str:
    more = ", …" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _shape(text: str) -> str:
    return text.replace("torch.Size(", "").replace(")", "").replace("[", "(").replace("]", ")")


def differences(message: str) -> list[str]:
    """Return the complaints of torch's ``load_state_dict``, one short phrase for each kind of difference."""
    found = []
    for heading, kind in (("Missing key(s)", "missing from it"), ("Unexpected key(s)", "unknown to the model")):
        for line in message.splitlines():
            if heading in line:
                names = QUOTED.findall(line)
                found.append(f"{len(names)} weights are {kind} ({_first(names)})")
    shapes = SHAPES.findall(message + "\n")
    if shapes:
        each = [f"{name}: {_shape(there)} in it, {_shape(here)} in the model" for name, there, here in shapes]
        found.append(f"{len(shapes)} weights have another shape ({_first(each)})")
    return found


def explain(path: str, error: BaseException | None) -> UserError | None:
    """Return one line for a failed strict load; None if ``error`` is something else."""
    if isinstance(error, UserError):
        return error
    found = differences(str(error)) if isinstance(error, RuntimeError) else []
    if not found:
        return None
    return UserError(f"checkpoint {path} is of another architecture or dictionary: {'; '.join(found)}")


def restore_or_explain(load: Callable[..., Any], trainer: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.load_checkpoint``, where fairseq replaces the reason of any failure by a general sentence.

    Raises:
        UserError: the weights do not match the model, with the differences.
    """
    try:
        return load(trainer, filename, *args, **kwargs)
    except Exception as error:
        clear = explain(filename, error.__context__)
        if clear is None:
            raise
        raise clear from error


def load_or_explain(load: Callable[..., Any], filenames: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """``load_model_ensemble_and_task``, where fairseq prints every differing name.

    Raises:
        UserError: the weights do not match the model, with the differences.
    """
    try:
        return load(filenames, *args, **kwargs)
    except RuntimeError as error:
        clear = explain(", ".join(filenames), error)
        if clear is None:
            raise
        raise clear from error


def apply() -> None:
    """Wrap the functions by which ``fairseq-train`` and all other commands load a model."""
    wrap(Trainer, "load_checkpoint", restore_or_explain, order=50)
    wrap(checkpoint_utils, "load_model_ensemble_and_task", load_or_explain, order=20)
