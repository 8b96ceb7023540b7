"""``--num-batch-buckets``, ``--sample-break-mode eos``, ``fairseq-interactive`` of language models: traces, numpy 2.

fairseq uses ``np.compat.long``, which was a name of ``int``, and an argument of ``np.percentile`` that is renamed.
https://github.com/facebookresearch/fairseq/issues/4945 is about other such names.
"""

import functools
from types import ModuleType, SimpleNamespace

import numpy as np
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset


def apply() -> None:
    """Give the modules that need them, and no other, a numpy with these names."""
    if not hasattr(np, "compat"):
        older = ModuleType("numpy")
        vars(older).update(
            compat=SimpleNamespace(long=int),
            percentile=lambda *args, interpolation: np.percentile(*args, method=interpolation),  # type: ignore[call-overload]
            __getattr__=functools.partial(getattr, np),  # all other names
        )
        for module in (data_utils, language_pair_dataset, token_block_dataset):
            vars(module)["np"] = older
