"""torch >= 2.6 refuses every checkpoint that fairseq wrote.

``torch.load`` now builds only classes that it knows to be harmless. fairseq stores the options of older models as an
``argparse.Namespace``, numbers and counts of BLEU as numpy values, and once stored meters; naming these to torch is
enough, so nothing is ever unpickled without restriction. https://github.com/facebookresearch/fairseq/issues/5610
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
import torch
from fairseq.logging import meters
from torch import _weights_only_unpickler

try:
    from numpy._core import multiarray
except ImportError:  # numpy < 2
    from numpy.core import multiarray  # type: ignore[no-redef]

NUMPY_KINDS = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
METERS = ("AverageMeter", "SumMeter", "TimeMeter", "StopwatchMeter")


def harmless_classes() -> list[Any]:
    """Return the classes that fairseq stores besides tensors and plain Python; building them runs no code of the file.

    A pair maps a class to the name under which an older numpy or fairseq stored it.
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
    return [Namespace, np.ndarray, np.dtype, *kinds, *counters, *renamed]


def apply() -> None:
    """Add the classes to torch's list, which is a set: repeating changes nothing."""
    torch.serialization.add_safe_globals(harmless_classes())
    # A file can name a ``bytearray`` of any size, which torch makes; fairseq stores none.
    _weights_only_unpickler._get_allowed_globals().pop("builtins.bytearray", None)
