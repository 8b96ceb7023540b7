"""``fairseq-generate --num-shards N --shard-id K`` translates every sentence in each of the N calls.

It asks for the rank of a distributed run alone, ``fairseq-eval-lm`` for both. A shard is some whole batches; if it is
none, fairseq divides by zero. Not reported upstream so far.
"""

import logging
from collections.abc import Callable
from typing import Any

from fairseq_cli import generate

from fairseq_plugins.errors import UserError


def translate_one_shard(main: Callable[..., Any], cfg: Any, *args: Any) -> Any:
    """``generate._main``, which reads no other setting of the distribution; a UserError if no shard has this number."""
    shards, shard, distributed = cfg.dataset.num_shards, cfg.dataset.shard_id, cfg.distributed_training
    if not 0 <= shard < shards:
        raise UserError(f"--shard-id must be from 0 to {shards - 1} with --num-shards {shards}, not {shard}")
    if shards > distributed.distributed_world_size:
        distributed.distributed_world_size, distributed.distributed_rank = shards, shard
    try:
        return main(cfg, *args)
    except ZeroDivisionError:  # the mean length of no sentence
        if shards == 1:
            raise
        fewer = "fewer shards or smaller batches (--max-tokens, --batch-size) divide the work evenly"
        logging.getLogger(__name__).warning(f"shard {shard} of {shards} has no batch, and translates nothing; {fewer}")


WRAPPED = ((generate, "_main", translate_one_shard),)
