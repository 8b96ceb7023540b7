"""torch >= 2.6 refuses every checkpoint that fairseq wrote, and to resume a training of several processes.

``torch.load`` now builds only classes that it knows to be harmless. fairseq stores the options of older models as an
``argparse.Namespace``, numbers and counts of BLEU as numpy values, and once stored meters; naming these to torch is
enough, so nothing is ever unpickled without restriction. https://github.com/facebookresearch/fairseq/issues/5610

The first process sends the checkpoint that it has read to the others, which read omegaconf's ``DictConfig`` in it by
``torch.load``. Data of another process of the same training has a known origin, and fairseq's other messages between
processes are pickles, too.
"""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import meters
from torch import _weights_only_unpickler

try:
    from numpy._core import multiarray
except ImportError:  # numpy < 2
    from numpy.core import multiarray  # type: ignore[no-redef]

NUMPY_KINDS = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
METERS = ("AverageMeter", "SumMeter", "TimeMeter", "StopwatchMeter")


def apply() -> None:
    """Add to torch's list the classes that fairseq stores besides tensors and plain Python; none runs code of a file.

    A pair maps a class to the name under which an older numpy or fairseq stored it. Repeating changes nothing.
    """
    numpy_pieces = [multiarray.scalar, multiarray._reconstruct]
    renamed = [
        (piece, f"{home}.multiarray.{piece.__name__}")
        for piece in numpy_pieces
        for home in ("numpy.core", "numpy._core")
    ]
    counters = [getattr(meters, name) for name in METERS]
    renamed += [(counter, f"fairseq.meters.{counter.__name__}") for counter in counters]
    kinds = sorted({type(np.dtype(kind)) for kind in NUMPY_KINDS}, key=str)
    torch.serialization.add_safe_globals([Namespace, np.ndarray, np.dtype, *kinds, *counters, *renamed])
    # A file can name a ``bytearray`` of any size, which torch makes; fairseq stores none.
    _weights_only_unpickler._get_allowed_globals().pop("builtins.bytearray", None)


def broadcast_by_torch(broadcast: Callable[..., Any], obj: Any, src_rank: int, group: Any, dist_device: Any) -> Any:
    """``_broadcast_object_slow`` by torch's own function; TPUs have none."""
    if isinstance(group, tuple):
        return broadcast(obj, src_rank, group, dist_device)
    box = [obj]
    dist.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
    return box[0]


WRAPPED = ((distributed_utils, "_broadcast_object_slow", broadcast_by_torch),)
