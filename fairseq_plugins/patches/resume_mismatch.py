"""A different training in the same ``--save-dir`` silently continues from the weights that it finds there.

fairseq compares only the shapes of the weights and the names of criterion and optimizer, so a DeepNet started where
there is a Post-LN model of the same size continues from it and overwrites it. Here a training that resumes by itself,
from the last checkpoint of its own directory, must be the one that wrote it. Settings of the machine, or of how long
and how fast to train, may differ: the groups ``dataset``, ``optimization``, ``checkpoint``, ``distributed_training``
and ``ema``, and ``common`` except the seed. Each ``--reset-...`` excludes the settings that it resets.

A file that the user names, with ``--restore-file`` or ``--finetune-from-model``, is loaded as it is. A line then says
how its model differs: another number of heads or another place of LayerNorm has weights of the same shapes.
"""

import ast
import logging
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fairseq import checkpoint_utils
from fairseq.dataclass.configs import FairseqConfig
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_plugins.checkpoints import provenance
from fairseq_plugins.checkpoints.provenance import LAST, trained_on
from fairseq_plugins.core.architectures import rename
from fairseq_plugins.errors import raise_everywhere
from fairseq_plugins.integrity import TRAINED_ON, read_checkpoint

NAMED = 6
"""Maximum number of differences in a message."""

GROUPS = ("common", "dataset", "optimization", "checkpoint", "distributed_training", "ema")
OF_OTHER_GROUPS = frozenset(
    setting.name for group in GROUPS for setting in fields(FairseqConfig.__dataclass_fields__[group].type)
) - {"_name", "sentence_avg"}
"""Settings that may change, also where a model, criterion, optimizer or schedule repeats them, such as ``lr``.
``sentence_avg`` is another objective, and may not."""
MAY_CHANGE = OF_OTHER_GROUPS | {
    # Memory and speed.
    *("checkpoint_activations", "offload_activations", "min_params_to_wrap", "use_old_adam", "fp16_adam_stats"),
    # Source of the embeddings of a new model; maximum length of a sentence.
    *("encoder_embed_path", "decoder_embed_path", "max_source_positions", "max_target_positions"),
    # Equal to --max-update, which may change; compared where optimizers are loaded.
    "total_num_update",
}
TASK_SETTINGS = {"_name", "tokens_per_sample", "sample_break_mode", "lang_pairs"}
SHOWN = {"model._name": "architecture", "lr_scheduler._name": "learning rate schedule"}

logger = logging.getLogger(__name__)


def differences(before: Mapping[str, Any], cfg: Any, trainer: Trainer) -> list[str]:
    """Return the differences between this training and that of the checkpoint ``before``, as phrases, names first.

    Settings that only one of them has come from another version and are ignored.
    """
    groups = ["task", "model", *([] if cfg.reset_optimizer else ["criterion", "optimizer"])]
    if not (cfg.reset_optimizer or cfg.reset_lr_scheduler):
        groups.append("lr_scheduler")
    now = _plain_config(trainer.cfg)
    # Without settings the checkpoint was written by fairseq before 1.0.
    then = before.get("cfg") or {}
    old_seed, new_seed = (config.get("common", {}).get("seed") for config in (then, now))
    values = [] if old_seed is None else [("seed", old_seed, new_seed)]
    values += [change for group in groups for change in _both(group, then, now)]
    # Kept as text: a fingerprint such as 0031e8453278 reads like a number.
    stored = (before.get("extra_state") or {}).get(TRAINED_ON, {})
    values += [(name, stored[name], value) for name, value in trained_on(trainer.task).items() if name in stored]
    return _phrases(values)


def _plain_config(config: Any) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    return dict(plain)


def _both(group: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the settings of a group that both configurations have, with their values."""
    old, new = settings_of(group, then), settings_of(group, now)
    for name in sorted(new.keys() & old.keys()):
        shown = SHOWN.get(f"{group}.{name}", f"{group}.{name}").removesuffix("._name")
        yield shown, _plain(old[name]), _plain(new[name])


def _phrases(values: Iterable[tuple[str, Any, Any]]) -> list[str]:
    """What changed, names without a group first, each once even if a group repeats the setting of another."""
    changes: dict[tuple[str, str], str] = {}
    for shown, old, new in sorted(values, key=lambda value: "." in value[0]):
        if old != new:
            change = f"{new}, was {old}"
            changes.setdefault((shown.rpartition(".")[2], change), f"{shown}: {change}")
    return list(changes.values())


def _listed(changes: Sequence[str]) -> str:
    more = f"; {len(changes) - NAMED} more" if len(changes) > NAMED else ""
    return f"{'; '.join(changes[:NAMED])}{more}"


def settings_of(group: str, cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a group that define a training."""
    content = cfg.get(group) or {}
    values = dict(vars(content) if isinstance(content, Namespace) else content)
    if group == "model":
        rename(renamed := Namespace(**values))
        values = vars(renamed)
    name = values.get("_name")
    names = TASK_SETTINGS if group == "task" else set(values)
    if group in ("criterion", "optimizer"):
        # A faster form, or one that is observed, keeps the name of the class that it extends; the plain form has the
        # shortest name, and no settings of the observer.
        registry = REGISTRIES[group]["registry"]
        kind = getattr(registry.get(name), "__name__", None)
        same = (other for other, registered in registry.items() if registered.__name__ == kind)
        values["_name"] = plain = min(same, key=len, default=name)
        if declared := REGISTRIES[group]["dataclass_registry"].get(plain):
            names = {"_name", *(field.name for field in fields(declared))}
    if group != "task" and isinstance(content, Namespace):
        # A part of fairseq without a dataclass: the namespace has every flag of the command.
        parser = ArgumentParser(add_help=False, conflict_handler="resolve")
        if name in ARCH_MODEL_REGISTRY:
            ARCH_MODEL_REGISTRY[name].add_args(parser)
        names = {"_name", *(action.dest for action in parser._actions)}
    return {name: value for name, value in values.items() if name in names - MAY_CHANGE}


def _plain(value: Any) -> Any:
    """Normalise: ``"(0.9, 0.98)"`` of a flag and ``[0.9, 0.98]`` of a YAML file are the same value."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            return value
    return list(value) if isinstance(value, tuple) else value


def refuse_another(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint`` after a comparison with the last one; a UserError in every process for another training."""
    path = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix or ''}.pt")
    changes: list[str] = []
    if cfg.restore_file == LAST and trainer.data_parallel_rank == 0 and PathManager.isfile(path):
        changes = differences(read_checkpoint(PathManager.get_local_path(path)), cfg, trainer)
    problem = (
        f"{cfg.save_dir}: holds a training with other settings ({_listed(changes)}); use another --save-dir, and add "
        f"--finetune-from-model {path} if the new training should start from its weights"
    )
    raise_everywhere(trainer, problem if changes else None)
    return load(cfg, trainer, **kwargs)


def say_how_the_model_differs(load: Callable[..., dict[str, Any]], path: str, *args: Any, **kwargs: Any) -> Any:
    """``load_checkpoint_to_cpu`` for a training, and a line about the model of ``path`` if it is another."""
    state = load(path, *args, **kwargs)
    if (reader := provenance.loading.get()) is not None:
        then, now = (_plain_config(config) for config in (state.get("cfg") or {}, reader[0].cfg))
        # Dropout is no part of what the weights compute.
        changes = _phrases(change for change in _both("model", then, now) if "drop" not in change[0])
        if changes:
            logger.warning(
                f"{path} is of a model with other settings, and its weights start this one: {_listed(changes)}"
            )
    return state


WRAPPED = (
    (checkpoint_utils, "load_checkpoint", refuse_another, 30),
    (checkpoint_utils, "load_checkpoint_to_cpu", say_how_the_model_differs, 0),
)
