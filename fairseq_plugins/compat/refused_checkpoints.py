"""torch >= 2.6 refuses every checkpoint that fairseq wrote.

``torch.load`` now builds only classes it knows to be harmless. fairseq stores the options of older models as an
``argparse.Namespace``, and numbers and counts of BLEU as numpy values; naming these to torch is enough, so nothing is
ever unpickled without restriction. https://github.com/facebookresearch/fairseq/issues/5610
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any, List

import numpy as np
import torch

try:
    from numpy._core import multiarray
except ImportError:  # numpy < 2
    from numpy.core import multiarray  # type: ignore[no-redef]

NUMPY_KINDS = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")


def harmless_classes() -> List[Any]:
    """What fairseq stores beside tensors and plain Python; building any of these runs no code of the file's choice."""
    kinds = {type(np.dtype(kind)) for kind in NUMPY_KINDS}
    return [Namespace, np.ndarray, np.dtype, multiarray.scalar, multiarray._reconstruct, *sorted(kinds, key=str)]


def apply() -> None:
    """Add the classes to torch's list, which is a set: repeating changes nothing. Older torch needs none."""
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals(harmless_classes())
