"""A different training in the same ``--save-dir`` silently continues from the weights that it finds there.

fairseq compares only the shapes of the weights and the names of criterion and optimizer, so a DeepNet started where
there is a Post-LN model of the same size continues from it and overwrites it. Here a training that resumes by itself,
from the last checkpoint of its own directory, must be the one that wrote it. Settings of the machine, or of how long
and how fast to train, may differ: the groups ``dataset``, ``optimization``, ``checkpoint``, ``distributed_training``
and ``ema``, and ``common`` except the seed. A file that ``--restore-file`` names is loaded as it is, and each
``--reset-...`` excludes what it resets from the comparison.
"""

from __future__ import annotations

import ast
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import fields
from typing import Any

from fairseq import checkpoint_utils
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass import configs
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_plugins.integrity import plain_content
from fairseq_plugins.patches.another_dictionary import TRAINED_ON, trained_on
from fairseq_plugins.patches.two_trainings_at_once import raise_everywhere
from fairseq_plugins.patches.unreadable_checkpoints import DEFAULT_RESTORE_FILE
from fairseq_plugins.patches.wrapping import wrap

NAMED = 6
"""Maximum number of differences in a message."""

OF_OTHER_GROUPS = frozenset(
    field.name
    for group in (
        configs.CommonConfig,
        configs.DatasetConfig,
        configs.OptimizationConfig,
        configs.CheckpointConfig,
        configs.DistributedTrainingConfig,
        configs.EMAConfig,
    )
    for field in fields(group)
) - {"_name"}
"""Settings that may change; models, criteria, optimizers and schedules repeat some of them, such as ``lr``."""
MAY_CHANGE = OF_OTHER_GROUPS | {
    # Memory and speed.
    "checkpoint_activations",
    "offload_activations",
    "min_params_to_wrap",
    "use_old_adam",
    "fp16_adam_stats",
    # Source of the embeddings of a new model; maximum length of a sentence.
    "encoder_embed_path",
    "decoder_embed_path",
    "max_source_positions",
    "max_target_positions",
    # As long as --max-update, which may change; compared where optimizers are loaded.
    "total_num_update",
    "no_weight_decay_on",
}
TASK_SETTINGS = frozenset({"_name", "tokens_per_sample", "sample_break_mode", "lang_pairs"})


def differences(before: Mapping[str, Any], cfg: Any, trainer: Trainer) -> list[str]:
    """Return the differences between this training and that of the checkpoint ``before``, as phrases, names first.

    Settings that only one of them has come from another version and are ignored.
    """
    then: Any = before.get("cfg")
    now: Any = OmegaConf.to_container(trainer.cfg, resolve=True, enum_to_str=True)
    # Without one the checkpoint was written by fairseq before 1.0.
    settings = _settings(then, now, cfg) if then else ()
    values = [(name, _plain(old), _plain(new)) for name, old, new in settings]
    # Not made plain: a fingerprint such as 0031e8453278 reads like a number.
    on = (before.get("extra_state") or {}).get(TRAINED_ON, {})
    values += [(name, on[name], value) for name, value in trained_on(trainer.task).items() if name in on]
    changes: dict[tuple[str, str], str] = {}
    for name, old, new in sorted(values, key=lambda value: "." in value[0]):
        if old != new:
            # Reported once, even if a group repeats the setting of another.
            change = f"{new}, was {old}"
            changes.setdefault((name.rpartition(".")[2], change), f"{name}: {change}")
    return list(changes.values())


def _settings(then: Mapping[str, Any], now: Mapping[str, Any], cfg: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, old value and new value of every setting that defines a training."""
    of_training = {"model": "architecture", "lr_scheduler": "learning rate schedule"}
    yield "seed", then.get("common", {}).get("seed"), now["common"].get("seed")
    groups = ["task", "model", *([] if cfg.reset_optimizer else ["criterion", "optimizer"])]
    if not (cfg.reset_optimizer or cfg.reset_lr_scheduler):
        groups.append("lr_scheduler")
    for group in groups:
        old, new = _values(then.get(group)), _values(now.get(group))
        if group == "criterion":
            _leave_out_what_watches(old, new)
        if group == "optimizer":
            for values in (old, new):
                values["_name"] = min(_of_the_same_class(values.get("_name"), OPTIMIZER_REGISTRY), key=len)
        own = TASK_SETTINGS if group == "task" else _own_settings(now.get(group), new)
        for name in sorted(old.keys() & new.keys() & own - MAY_CHANGE):
            yield of_training.get(group, group) if name == "_name" else f"{group}.{name}", old[name], new[name]


def _values(group: Any) -> dict[str, Any]:
    return dict(vars(group) if isinstance(group, Namespace) else group or {})


def _own_settings(group: Any, values: Mapping[str, Any]) -> Set[str]:
    """Return the setting names of a configuration group; one without a dataclass has all flags of the command."""
    if not isinstance(group, Namespace):
        return values.keys()
    parser = ArgumentParser(add_help=False, conflict_handler="resolve")
    if values["_name"] in ARCH_MODEL_REGISTRY:
        ARCH_MODEL_REGISTRY[values["_name"]].add_args(parser)
    return {"_name", *(action.dest for action in parser._actions)}


def _leave_out_what_watches(*criteria: dict[str, Any]) -> None:
    """Keep the settings that all criteria with the same loss have, and the name of the loss.

    An observer may extend a criterion under another name; fairseq compares the names of classes.
    """
    for values in criteria:
        same = _of_the_same_class(values.get("_name"), CRITERION_REGISTRY)
        known = [
            {field.name for field in fields(CRITERION_DATACLASS_REGISTRY[name])}
            for name in same
            if name in CRITERION_DATACLASS_REGISTRY
        ]
        for name in values.keys() - (set.intersection(*known) if known else values.keys()) - {"_name"}:
            del values[name]
        values["_name"] = min(same, key=len)


def _of_the_same_class(name: Any, registry: Mapping[str, type]) -> list[str]:
    """Return ``name``, and the names of classes that fairseq takes for the same, since they are called the same."""
    kind = getattr(registry.get(name), "__name__", None)
    return [str(name), *(other for other, one in registry.items() if one.__name__ == kind)]


def _plain(value: Any) -> Any:
    """Normalise: ``"(0.9, 0.98)"`` of a flag and ``[0.9, 0.98]`` of a YAML file are the same value."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            return value
    return list(value) if isinstance(value, tuple) else value


def refuse_another(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint`` that resumes only the training that wrote ``--save-dir``.

    Raises:
        UserError: it is another one, with the differences; raised in every process.
    """
    path = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix or ''}.pt")
    found: list[str] = []
    if cfg.restore_file == DEFAULT_RESTORE_FILE:
        if trainer.data_parallel_rank == 0 and PathManager.isfile(path):
            local = PathManager.get_local_path(path)
            found = differences(plain_content(local), cfg, trainer)
    more = f"; {len(found) - NAMED} more" if len(found) > NAMED else ""
    problem = (
        f"{cfg.save_dir}: holds a training with other settings ({'; '.join(found[:NAMED])}{more}); use another "
        f"--save-dir, and add --finetune-from-model {path} if the new training should start from its weights"
    )
    raise_everywhere(trainer, problem if found else None)
    return load(cfg, trainer, **kwargs)


def apply() -> None:
    """Wrap the function by which a training resumes."""
    wrap(checkpoint_utils, "load_checkpoint", refuse_another, order=30)
