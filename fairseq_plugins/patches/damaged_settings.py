"""A setting of another kind in a checkpoint, a word for a number, ends in a stack trace from deep inside a model.

fairseq compares the settings of a task with their declarations when it loads a model, and those of the model never.
Here both are compared after something has failed, so that what fails for another reason keeps its trace.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.integrity import plain_content
from fairseq_plugins.patches.wrapping import wrap

PLAIN = (type(None), bool, int, float, str)
REGISTRIES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, type[FairseqDataclass]]]] = {
    "model": (ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
    "task": (TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
}
"""Every name of a group, and the declarations of those that have one."""


def wrong_settings(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield each setting of the model and the task that is not what its declaration says."""
    config = state.get("cfg") or {}
    for group, (names, registry) in REGISTRIES.items():
        stored = config.get(group)
        if stored is None:
            continue
        stored = vars(stored) if isinstance(stored, Namespace) else stored
        if not isinstance(stored, Mapping):
            yield f"its settings of the {group} are a {type(stored).__name__}"
            continue
        chosen = str(stored.get("_name"))
        if chosen not in names:
            yield f"unknown {group} '{chosen}'{nearest(chosen, sorted(names))}"
            continue
        declared = registry.get(ARCH_MODEL_NAME_REGISTRY.get(chosen, chosen) if group == "model" else chosen)
        if declared is None:
            continue  # declared to a parser
        settings = OmegaConf.structured(declared)
        for name, value in stored.items():
            if problem := _problem(settings, str(name), value):
                yield f"its setting {group}.{name} is {str(value)[:40]!r}: {problem}"


def _problem(settings: DictConfig, name: str, value: Any) -> str | None:
    """Why a value cannot be that of a setting; None if it can, or if there is no such setting."""
    if not isinstance(value, (*PLAIN, list, tuple, Mapping)):
        return f"a {type(value).__name__} is no setting"
    if name not in settings:
        return None
    before = (
        None if OmegaConf.is_interpolation(settings, name) or OmegaConf.is_missing(settings, name) else settings[name]
    )
    try:
        settings[name] = value
    except OmegaConfBaseException as error:
        return str(error).splitlines()[0]
    except (AssertionError, TypeError, ValueError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(before, (int, float)) and not isinstance(value, (int, float, str)):
        return "it is a number"
    return None


@contextmanager
def explained_by_settings(path: str | Path, state: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Explain an error by the settings of the checkpoint at ``path``, if they are wrong.

    Args:
        path: its file.
        state: its content, if that is at hand.

    Raises:
        UserError: instead of an error, with the first setting that is wrong.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        _explain(path, plain_content(path) if state is None else state, error)
        raise


def _explain(path: str | Path, state: Mapping[str, Any], error: Exception) -> None:
    """Raise one line instead of ``error`` if a setting is wrong."""
    if problem := next(wrong_settings(state), None):
        raise UserError(f"checkpoint {path} is damaged: {problem}") from error


def load_or_explain(load: Callable[..., Any], filenames: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """``load_model_ensemble_and_task``, one file at a time in messages.

    Raises:
        UserError: a setting in a file is of another kind than its declaration.
    """
    try:
        return load(filenames, *args, **kwargs)
    except UserError:
        raise
    except Exception as error:
        for name in filter(lambda name: Path(name).is_file(), filenames):
            _explain(name, plain_content(name), error)
        raise


def apply() -> None:
    """Wrap the function by which all commands but ``fairseq-train`` load a model."""
    wrap(checkpoint_utils, "load_model_ensemble_and_task", load_or_explain, order=10)
