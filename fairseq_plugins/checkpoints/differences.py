"""Settings in which two trainings, or their models, differ: as phrases for a message.

Settings of the machine, or of how long and how fast to train, are no difference.
"""

import ast
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf

from fairseq_plugins.checkpoints.provenance import phrases
from fairseq_plugins.core.architectures import rename

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


def plain_config(config: Any) -> dict[str, Any]:
    """Return the content of an OmegaConf object as dictionaries."""
    plain: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    return dict(plain)


def changes_in(group: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the settings of a group that both configurations have, with their values."""
    old, new = settings_of(group, then), settings_of(group, now)
    for name in sorted(new.keys() & old.keys()):
        shown = SHOWN.get(f"{group}.{name}", f"{group}.{name}").removesuffix("._name")
        yield shown, _plain(old[name]), _plain(new[name])


def changes_of_model(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences of two models as phrases; dropout is no part of what the weights compute."""
    changes = [change for change in changes_in("model", then, now) if "drop" not in change[0]]
    return phrases(changes)


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
