"""Is a checkpoint whole, is it plain data, and does it hold what fairseq saves?

torch takes a flipped byte for another weight: it does not compare the CRC-32 of the records in its zip archive. Here
they are compared, which takes about a second for each GB. Then torch builds plain data alone (``weights_only``), so
that nothing in a file is executed. Averages, folds and packages also hold a SHA-256 of their weights.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.errors import UserError

NON_FINITE_ALLOWED = "FAIRSEQ_DEEP_ALLOW_NON_FINITE"
"""Environment variable that lets every process of a command read weights that are not finite."""
SHA256 = "weights_sha256"
"""The entry of ``extra_state`` that holds the hash of the weights."""
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""A file of torch before 1.6, or of ``_use_new_zipfile_serialization=False``, begins with this."""
UNSAFE_NAME = re.compile(r"(?:GLOBAL|Unsupported class:?) ([\w.]+)")


def plain_content(path: str | Path) -> dict[str, Any]:
    """Return the content of a checkpoint, mapped from the file where it can be; nothing in it is executed.

    Raises:
        UserError: the file is missing, empty, of another kind, damaged, holds more than plain data or other things
            than a checkpoint of fairseq, or weights that are not finite.
    """
    with explained(path):
        require_sound(Path(path))
    state = unchecked_content(path)
    require_content(path, state)
    return dict(state)


def unchecked_content(path: str | Path) -> Any:
    """Return what ``torch.load`` makes of a file whose checksums are, or will be, compared elsewhere.

    Raises:
        UserError: it cannot be loaded, or holds more than plain data.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise explain(path, error) from error


def require_sound(path: Path) -> None:
    """Check that a file is one of ``torch.save``, and compare the checksum of each record in it.

    Raises:
        UserError: one line with what is wrong; a damaged record is named.
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as stream:
        start = stream.read(len(LEGACY))
        if not start:
            raise UserError(f"checkpoint {path} is empty")
        if start == LEGACY:
            return
        try:
            archive = zipfile.ZipFile(stream)
            # torch.serialization.set_crc32_options(False) leaves every checksum at zero.
            damaged = archive.testzip() if any(record.CRC for record in archive.infolist()) else None
        except (EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zipfile.error) as error:
            raise explain(path, error) from error
    if damaged is not None:
        name = damaged.partition("/")[2] or damaged
        raise UserError(f"checkpoint {path} is damaged: the bytes of its record {name!r} have changed")


@contextmanager
def explained(path: str | Path) -> Iterator[None]:
    """Give errors of reading the file at ``path`` in one line.

    Raises:
        UserError: instead of them.
    """
    try:
        yield
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        raise explain(path, error) from error
    except RuntimeError as error:
        if "PytorchStreamReader" in str(error) or "failed finding central directory" in str(error):
            raise explain(path, error) from error
        raise


def explain(path: str | Path, error: Exception) -> UserError:
    """Return one line for an error of reading the file at ``path``."""
    if isinstance(error, (FileNotFoundError, IsADirectoryError, PermissionError)):
        return UserError(f"cannot read checkpoint {path}: {error.strerror}")
    unsafe = UNSAFE_NAME.search(str(error)) if isinstance(error, pickle.UnpicklingError) else None
    if unsafe:
        return UserError(
            f"checkpoint {path} is refused: it holds '{unsafe[1]}', which is not plain data and could run code when "
            "loaded"
        )
    return UserError(f"checkpoint {path} is truncated or not a checkpoint")


def require_content(path: str | Path, state: Any) -> None:
    """Check what ``torch.load`` has returned for the file at ``path``.

    Raises:
        UserError: there are no weights, others than were written, or some that are not finite.
    """
    weights = state.get("model") if isinstance(state, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise UserError(f"{path} is not a fairseq checkpoint: it has no weights under 'model'")
    recorded = (state.get("extra_state") or {}).get(SHA256)
    if recorded is not None and recorded != weights_hash(weights):
        raise UserError(
            f"checkpoint {path} is damaged: its weights are not those that were written (SHA-256), or another program "
            "has changed them"
        )
    require_finite(path, weights)


def require_finite(path: str | Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not finite, unless :data:`NON_FINITE_ALLOWED` is set.

    Raises:
        UserError: names the first of them.
    """
    if os.environ.get(NON_FINITE_ALLOWED):
        return
    for name, weight in weights.items():
        # Smallest and largest, since torch.isfinite makes copies of a tensor.
        if weight.is_floating_point() and weight.numel() and not torch.stack(weight.aminmax()).isfinite().all():
            raise UserError(
                f"{path}: the weight {name} is not finite: the training has diverged, or the file is damaged; "
                f"{NON_FINITE_ALLOWED}=1 in the environment reads it nevertheless"
            )


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over names, types, shapes and bytes of ``weights``, in the order of their names.

    It is not the checksum of the file: a checkpoint also stores the duration of its training, so two runs never match.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
