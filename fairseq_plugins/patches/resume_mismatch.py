"""A different training in the same ``--save-dir`` silently continues from the weights that it finds there.

fairseq compares only the shapes of the weights and the names of criterion and optimizer, so a DeepNet started where
there is a Post-LN model of the same size continues from it and overwrites it. Here a training that resumes by itself,
from the last checkpoint of its own directory, must be the one that wrote it. Settings of the machine, or of how long
and how fast to train, may differ: the groups ``dataset``, ``optimization``, ``checkpoint``, ``distributed_training``
and ``ema``, and ``common`` except the seed. Each ``--reset-...`` excludes the settings that it resets.

A file that the user names, with ``--restore-file`` or ``--finetune-from-model``, is loaded as it is. A line then says
how its model differs: another number of heads or another place of LayerNorm has weights of the same shapes. An
optimizer that goes on has the settings of the file, whatever the flags say, so there they must be equal.
"""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.checkpoints import provenance
from fairseq_plugins.checkpoints.differences import changes_in, changes_of_model, plain_config
from fairseq_plugins.checkpoints.provenance import LAST, listed, phrases, trained_on
from fairseq_plugins.errors import UserError, raise_everywhere
from fairseq_plugins.integrity import TRAINED_ON, read_checkpoint

logger = logging.getLogger(__name__)


def differences(before: Mapping[str, Any], cfg: Any, trainer: Trainer) -> list[str]:
    """Return the differences between this training and that of the checkpoint ``before``, as phrases, names first.

    Settings that only one of them has come from another version and are ignored.
    """
    groups = ["task", "model", *([] if cfg.reset_optimizer else ["criterion", "optimizer"])]
    if not (cfg.reset_optimizer or cfg.reset_lr_scheduler):
        groups.append("lr_scheduler")
    now = plain_config(trainer.cfg)
    # Without settings the checkpoint was written by fairseq before 1.0.
    then = before.get("cfg") or {}
    old_seed, new_seed = (config.get("common", {}).get("seed") for config in (then, now))
    values = [] if old_seed is None else [("seed", old_seed, new_seed)]
    values += [change for group in groups for change in changes_in(group, then, now)]
    # Kept as text: a fingerprint such as 0031e8453278 reads like a number.
    stored = (before.get("extra_state") or {}).get(TRAINED_ON, {})
    values += [(name, stored[name], value) for name, value in trained_on(trainer.task).items() if name in stored]
    return phrases(values)


def refuse_another(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint`` after a comparison with the last one; a UserError in every process for another training."""
    path = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix or ''}.pt")
    changes: list[str] = []
    if cfg.restore_file == LAST and trainer.data_parallel_rank == 0 and PathManager.isfile(path):
        changes = differences(read_checkpoint(PathManager.get_local_path(path)), cfg, trainer)
    problem = (
        f"{cfg.save_dir}: holds a training with other settings ({listed(changes)}); use another --save-dir, and add "
        f"--finetune-from-model {path} if the new training should start from its weights"
    )
    raise_everywhere(trainer, problem if changes else None)
    if cfg.restore_file != LAST and PathManager.isfile(path):
        logger.warning(f"{path}: is not read, since --restore-file names another file; without the flag, it goes on")
    return load(cfg, trainer, **kwargs)


def say_how_the_model_differs(load: Callable[..., dict[str, Any]], path: str, *args: Any, **kwargs: Any) -> Any:
    """``load_checkpoint_to_cpu`` for a training, and a line about the model of ``path`` if it is another.

    A UserError if its optimizer goes on, and has other settings than the command.
    """
    state = load(path, *args, **kwargs)
    if (reader := provenance.loading.get()) is not None:
        trainer, starts_anew = reader
        then: dict[str, Any] = {}
        # A checkpoint of another program may have no settings, or names that it alone knows.
        with suppress(KeyError, ValueError, OmegaConfBaseException):
            then = plain_config(state["cfg"])
        now = plain_config(trainer.cfg)
        overrides = trainer.cfg.checkpoint.optimizer_overrides
        if not starts_anew and overrides == "{}" and (changes := phrases(changes_in("optimizer", then, now))):
            raise UserError(
                f"checkpoint {path}: its optimizer has other settings ({listed(changes)}), and keeps them: give these, "
                "or --optimizer-overrides, or --reset-optimizer"
            )
        if changes := changes_of_model(then, now):
            logger.warning(
                f"{path} is of a model with other settings, and its weights start this one: {listed(changes)}"
            )
    return state


WRAPPED = (
    (checkpoint_utils, "load_checkpoint", refuse_another, 30),
    (checkpoint_utils, "load_checkpoint_to_cpu", say_how_the_model_differs, 0),
)
