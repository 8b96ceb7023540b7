"""Read and write checkpoints: whole files of plain data, in fairseq's format.

torch takes a flipped byte for another weight: it does not compare the CRC-32 of the records in its zip archive. Here
they are compared, which takes about a second for each GB. Then torch builds plain data alone (``weights_only``), so
that nothing in a file is executed. Averages, folds and packages also hold a SHA-256 of their weights. A file appears
under its name only when it is whole.
"""

import hashlib
import os
import pickle
import re
import zipfile
from argparse import Namespace
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_file
from fairseq_plugins.process import importing
from fairseq_plugins.records import require

NON_FINITE_ALLOWED = "FAIRSEQ_DEEP_ALLOW_NON_FINITE"
"""Environment variable that lets every process of a command read weights that are not finite."""
TRAINED_ON = "trained_on"
"""The entry of ``extra_state`` that holds languages and dictionaries; the configuration does not have them."""
SHA256 = "weights_sha256"
"""The entry of ``extra_state`` that holds the hash of the weights."""
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""A file of torch before 1.6, or of ``_use_new_zipfile_serialization=False``, begins with this."""
UNSAFE_NAME = re.compile(r"(?:GLOBAL|Unsupported class:?) ([\w.]+)")
KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64)
"""Types of weights, and of BatchNorm's counter; a model casts others without a word."""
TENSORS, LAYERS = ({str: Tensor}, None), (range(10_000), str, None)
"""No model of today has more layers, and they take minutes to build."""
FORMAT = {
    "model": {str: Tensor},
    "extra_state": (
        {
            "train_iterator": ({"epoch": (int, None)}, None),
            TRAINED_ON: ({str: str}, None),
            SHA256: (str, None),
            **dict.fromkeys(("ema", "ema_fp32_params"), TENSORS),
        },
        None,
    ),
    "optimizer_history": ([{"num_updates": (range(1 << 60), None)}], None),
    "cfg": (
        {str: ({str: object}, str, None), "model": ({"encoder_layers": LAYERS, "decoder_layers": LAYERS}, str, None)},
        None,
    ),
    "args": ({"encoder_layers": LAYERS, "decoder_layers": LAYERS}, None),
}
"""The entries of a checkpoint that are read here."""
# These belong to a training, not to weights: the optimiser's moments are of other weights, and the meters would make
# two results from the same files differ by their timestamps.
_OF_TRAINING = ("last_optimizer_state", "fsdp_metadata")
_EXTRA_STATE_KEPT = ("train_iterator", TRAINED_ON)


def import_fairseq() -> None:
    """Import fairseq with its patches, one of which tells torch what to load, or raise a UserError; takes seconds."""
    with importing():
        import fairseq.models  # noqa: F401  (the first import of fairseq patches and registers everything)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the content of a checkpoint, mapped from the file where it can be; nothing in it is executed.

    Raises:
        UserError: the file is missing, empty, of another kind, damaged, holds more than plain data or other things
            than a checkpoint of fairseq, or weights that are not finite.
    """
    import_fairseq()
    require_sound(Path(path))
    state = unchecked_content(path)
    weights = state.get("model") if isinstance(state, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise UserError(f"{path} is not a fairseq checkpoint: it has no weights under 'model'")
    try:
        leaves = require(state, FORMAT)
        for name, leaf in (*weights.items(), *(("", leaf) for leaf in leaves)):
            if isinstance(leaf, Tensor) and (problem := _oddity(leaf, bool(name))):
                raise ValueError(f"{f'the weight {name}' if name else 'a tensor of its state'} {problem}")
    except ValueError as error:
        raise UserError(f"{path} is not a fairseq checkpoint: {error}") from None
    recorded = (state.get("extra_state") or {}).get(SHA256)
    if recorded is not None and recorded != weights_hash(weights):
        raise UserError(
            f"checkpoint {path} is damaged: its weights are not those that were written (SHA-256), or another program "
            "has changed them"
        )
    require_finite(path, weights)
    return dict(state)


def unchecked_content(path: str | Path) -> Any:
    """Return the content of a file, by ``torch.load``; its checksums are, or will be, compared elsewhere.

    A UserError if it cannot be loaded, holds more than plain data, or its tensors have not the sizes of its records.
    """
    sizes: list[int] = []

    def noted(storage: Any, location: str) -> Any:
        sizes.append(storage.nbytes())
        return storage

    stored = None
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                stored = [one.file_size for one in archive.infolist() if "/data/" in one.filename and one.file_size]
        state = torch.load(path, map_location=noted, weights_only=True, mmap=stored is not None)
    except Exception as error:  # a bad file can make torch raise any exception
        raise explain(path, error) from error
    # A mapped tensor that is longer than its record continues in the next one; torch does not compare them.
    if stored is not None and sorted(filter(None, sizes)) != sorted(stored):
        raise UserError(f"checkpoint {path} is damaged: tensor sizes do not match its records")
    return state


def require_sound(path: Path) -> None:
    """Raise a UserError if a file is none of ``torch.save``, or names a record in it whose checksum is another."""
    try:
        with open(path, "rb") as stream:
            start = stream.read(len(LEGACY))
            if not start:
                raise UserError(f"checkpoint {path} is empty")
            if start == LEGACY:
                return
            archive = zipfile.ZipFile(stream)
            records, size = archive.infolist(), path.stat().st_size
            # torch compresses nothing. Many names of one record, each read anew, are larger than the file.
            if any(one.compress_type for one in records) or sum(one.file_size for one in records) > size:
                raise UserError(f"checkpoint {path} is damaged: its records are larger than the file")
            # torch.serialization.set_crc32_options(False) leaves every checksum at zero.
            damaged = archive.testzip() if any(one.CRC for one in records) else None
    except UserError:
        raise
    except (EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zipfile.error) as error:
        raise explain(path, error) from error
    if damaged is not None:
        name = damaged.partition("/")[2] or damaged
        raise UserError(f"checkpoint {path} is damaged: the bytes of its record {name!r} have changed")


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


def _oddity(tensor: Tensor, is_weight: bool) -> str:
    """Return why a tensor is not plain numbers in memory or, as a weight, has no legal type; else an empty text."""
    if is_weight and tensor.dtype not in KINDS:
        return f"is {str(tensor.dtype)[6:]}; legal: {', '.join(str(kind)[6:] for kind in KINDS)}"
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        return "is nested, sparse, quantised or without numbers"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"has more numbers, {tuple(tensor.shape)}, than are stored of it"
    return ""


def require_finite(path: str | Path, weights: Mapping[str, Tensor]) -> None:
    """Raise a UserError that names the first weight that is not finite, unless :data:`NON_FINITE_ALLOWED` is set."""
    if os.environ.get(NON_FINITE_ALLOWED):
        return
    for name, weight in weights.items():
        # Smallest and largest, since torch.isfinite makes copies of a tensor.
        if weight.is_floating_point() and weight.numel() and not torch.stack(weight.aminmax()).isfinite().all():
            raise UserError(
                f"{path}: the weight {name} is not finite: the training has diverged, or the file is damaged; "
                f"set {NON_FINITE_ALLOWED}=1 to load it anyway"
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


def owners_of(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the first name of each tensor by all its names; an empty tensor has no memory to share."""
    first: dict[Any, str] = {}
    places = {name: (w.data_ptr(), w.shape, w.stride(), w.dtype) if w.numel() else id(w) for name, w in weights.items()}
    return {name: first.setdefault(place, name) for name, place in places.items()}


def moving_average(state: dict[str, Any], path: Path, measured: Collection[str]) -> dict[str, Tensor]:
    """Return the exponential moving average of the weights in a checkpoint, in float32 if available.

    Tensors whose leaf name is in ``measured`` are not averaged: those of the model are used. A UserError if it has
    none, or one that lacks weights of the model or is not finite.
    """
    extra = state.get("extra_state") or {}
    if "ema" not in extra:
        raise UserError(f"{path}: contains no moving average of the weights; its training had no --store-ema")
    stored = {**extra["ema"], **(extra.get("ema_fp32_params") or {})}
    # A tensor with several names may have become several tensors in float32.
    owners = owners_of(state["model"])
    for name, owner in owners.items():
        if name.rpartition(".")[2] in measured:
            stored[owner] = state["model"][name]  # constant, except for the rounding of the moving average
        elif owner not in stored:
            raise UserError(f"{path}: its moving average lacks '{owner}', as stock fairseq writes it; train again")
    average = {name: stored[owner] for name, owner in owners.items()}
    require_finite(path, average)
    return average


def architecture(state: dict[str, Any]) -> str:
    """Return the value of ``--arch`` from a checkpoint in either of fairseq's two styles."""
    config = (state.get("cfg") or {}).get("model") or state.get("args")
    if isinstance(config, dict):
        return str(config.get("_name") or config.get("arch"))
    return str(getattr(config, "arch", None))


def configuration_of(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of a checkpoint by group, in either of fairseq's two styles; some tasks mix them."""
    if state.get("cfg"):
        groups = {name: vars(group) if isinstance(group, Namespace) else group for name, group in state["cfg"].items()}
        return {name: dict(group) for name, group in groups.items() if isinstance(group, Mapping)}
    flat = vars(state["args"]) if state.get("args") is not None else {}
    return {"task": {**flat, "_name": flat.get("task")}} if flat else {}


def recorded(state: Any) -> dict[str, str]:
    """Return a checkpoint's record of its training's languages and dictionaries; a stock one has no dictionaries."""
    if not isinstance(state, Mapping):
        return {}
    if stored := (state.get("extra_state") or {}).get(TRAINED_ON):
        return dict(stored)
    settings = (state.get("cfg") or {}).get("task") or state.get("args") or {}
    values = vars(settings) if isinstance(settings, Namespace) else settings
    return {name: str(values[name]) for name in ("source_lang", "target_lang") if values.get(name)}


def num_updates(state: dict[str, Any]) -> int | None:
    """Return the number of updates of the checkpoint; None if it is not recorded."""
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates")
    return None if updates is None else int(updates)


def without_training_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a checkpoint that stay valid for other weights: settings, task, updates, data position.

    Only the last entry of the optimizer history is kept: it has one for every resumption of the training.
    """
    entries = {key: value for key, value in state.items() if key not in _OF_TRAINING}
    if "optimizer_history" in entries:
        entries["optimizer_history"] = entries["optimizer_history"][-1:]
    extra = state.get("extra_state") or {}
    entries["extra_state"] = {key: extra[key] for key in _EXTRA_STATE_KEPT if key in extra}
    return entries


def write_checkpoint(state: dict[str, Any], output: Path) -> None:
    """Write ``state`` to ``output`` atomically, with a hash of its weights, or raise a UserError."""
    state = {**state, "extra_state": {**(state.get("extra_state") or {}), SHA256: weights_hash(state["model"])}}
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        # Pass an open file: torch would write a name into the file, and equal results would differ.
        with whole_file(output) as partial, open(partial, "wb") as stream:
            torch.save(state, stream)
    except (OSError, RuntimeError) as error:
        # torch raises another error when it closes the partial archive; the system's own is behind it.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__context__
        if cause is None:
            raise
        raise UserError(f"{output}: cannot be written: {cause.strerror or cause}") from error
