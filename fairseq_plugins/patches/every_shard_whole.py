"""``fairseq-generate --num-shards N --shard-id K`` translates every sentence in each of the N calls.

It asks for the rank of a distributed run alone, ``fairseq-eval-lm`` for both. A shard is some whole batches; if it is
none, fairseq divides by zero. With ``--results-path`` all calls write one file. Not reported upstream so far.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate

from fairseq_plugins.errors import UserError

logger = logging.getLogger(__name__)


def translate_one_shard(main: Callable[..., Any], cfg: Any) -> Any:
    """``generate.main``, which reads no other setting of the distribution; a UserError if no shard has this number."""
    cfg = convert_namespace_to_omegaconf(cfg) if isinstance(cfg, Namespace) else cfg
    shards, shard, distributed = cfg.dataset.num_shards, cfg.dataset.shard_id, cfg.distributed_training
    if not 0 <= shard < shards:
        raise UserError(f"--shard-id must be from 0 to {shards - 1} with --num-shards {shards}, not {shard}")
    if shards > distributed.distributed_world_size:
        distributed.distributed_world_size, distributed.distributed_rank = shards, shard
    if shards > 1:
        logger.warning(f"shard {shard} of {shards}: a score at the end is of this shard alone")
        if cfg.common_eval.results_path:
            cfg.common_eval.results_path = os.path.join(cfg.common_eval.results_path, f"shard{shard}of{shards}")
    try:
        return main(cfg)
    except ZeroDivisionError:  # the mean length of no sentence
        if shards == 1:
            raise
        fewer = "fewer shards or smaller batches (--max-tokens, --batch-size) divide the work evenly"
        logger.warning(f"shard {shard} of {shards} has no batch, and translates nothing; {fewer}")


WRAPPED = ((generate, "main", translate_one_shard),)
