"""A file that is not a usable checkpoint ends in a stack trace, or is not even noticed.

Truncated and empty files, files of another kind and files that would run code fail somewhere inside torch; with a
misspelt ``--restore-file``, training starts from scratch without a message.
https://github.com/facebookresearch/fairseq/issues/5610 shows the kind of error that reaches the user.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_plugins.checkpoints.provenance import LAST
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import read_checkpoint


def load_or_explain(load: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Any:
    """``load_checkpoint_to_cpu``, or the UserError of :func:`read_checkpoint` for a file that cannot be used."""
    # Before fairseq reads its entries, which may be of any kind.
    read_checkpoint(PathManager.get_local_path(path))
    return load(path, *args, **kwargs)


def require_restore_file(load: Callable[..., Any], cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """``load_checkpoint``, or a UserError if a file is absent that the user named to continue or to start from."""
    suffix, named = trainer.checkpoint_suffix or "", {}
    if cfg.restore_file != LAST:
        named["--restore-file"] = cfg.restore_file.replace(".pt", f"{suffix}.pt")
    elif not PathManager.exists(str(Path(cfg.save_dir) / f"checkpoint_last{suffix}.pt")):
        named = {"--continue-once": cfg.continue_once, "--finetune-from-model": cfg.finetune_from_model}
    missing = [f"{flag} {path}: no such file" for flag, path in named.items() if path and not PathManager.exists(path)]
    if missing:
        raise UserError(missing)
    return load(cfg, trainer, **kwargs)


WRAPPED = (
    (checkpoint_utils, "load_checkpoint_to_cpu", load_or_explain, 20),
    (checkpoint_utils, "load_checkpoint", require_restore_file, 40),
)
