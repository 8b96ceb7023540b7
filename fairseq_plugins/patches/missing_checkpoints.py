"""Checkpoints are missing: an update's at the end of an epoch, and those of epochs with ``--valid-subset train``.

* ``--save-interval-updates`` skips a checkpoint at the end of an epoch, even with ``--no-epoch-checkpoints``. An
  average of the last updates then reaches further back than asked.
  https://github.com/facebookresearch/fairseq/issues/2230
* Training and validation on the same data get one iterator, so the validation advances the training's epoch.
  https://github.com/facebookresearch/fairseq/issues/1156
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer


def save_when_due(save: Callable[..., Any], cfg: Any, trainer: Trainer, epoch_itr: Any, val_loss: Any) -> Any:
    """``save_checkpoint``, for which an epoch that gets no checkpoint of its own has not ended."""
    of_epoch = not cfg.no_epoch_checkpoints and epoch_itr.epoch % cfg.save_interval == 0
    if cfg.save_interval_updates > 0 and trainer.get_num_updates() % cfg.save_interval_updates == 0 and not of_epoch:
        # All that fairseq asks of the iterator.
        place = {"epoch": epoch_itr.epoch, "state_dict": epoch_itr.state_dict}
        epoch_itr = SimpleNamespace(end_of_epoch=lambda: False, **place)
    return save(cfg, trainer, epoch_itr, val_loss)


def iterator_of_its_own(
    get_valid_iterator: Callable[..., Any], trainer: Trainer, subset: str, disable_iterator_cache: bool = False
) -> Any:
    """``Trainer.get_valid_iterator``, a new one if the data set is the training set."""
    same = subset == trainer.cfg.dataset.train_subset
    return get_valid_iterator(trainer, subset, disable_iterator_cache=disable_iterator_cache or same)


WRAPPED = ((checkpoint_utils, "save_checkpoint", save_when_due), (Trainer, "get_valid_iterator", iterator_of_its_own))
