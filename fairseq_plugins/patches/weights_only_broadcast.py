"""torch >= 2.6 refuses to resume a training of several processes: omegaconf's ``DictConfig`` is not allowed.

The first process reads the checkpoint and sends it to the others, which read its settings by ``torch.load``. That
builds only plain data since then. Data of another process of the same training has a known origin,
and fairseq's other messages between processes are pickles, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils


def broadcast_by_torch(broadcast: Callable[..., Any], obj: Any, src_rank: int, group: Any, dist_device: Any) -> Any:
    """``_broadcast_object_slow`` by torch's own function; TPUs have none."""
    if isinstance(group, tuple):
        return broadcast(obj, src_rank, group, dist_device)
    box = [obj]
    dist.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
    return box[0]


WRAPPED = ((distributed_utils, "_broadcast_object_slow", broadcast_by_torch),)
