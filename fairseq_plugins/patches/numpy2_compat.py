"""``--num-batch-buckets``, ``--sample-break-mode eos``, ``fairseq-interactive`` of language models: traces, numpy 2.

fairseq uses ``np.compat.long``, which was a name of ``int``, and an argument of ``np.percentile`` that is renamed.
https://github.com/facebookresearch/fairseq/issues/4945 is about other such names.
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset


class OlderNumpy(ModuleType):
    """numpy with these names."""

    compat = SimpleNamespace(long=int)

    def percentile(self, *args: Any, interpolation: str) -> Any:
        """Return what numpy does, which calls it the method."""
        return np.percentile(*args, method=interpolation)  # type: ignore[call-overload]

    def __getattr__(self, name: str) -> Any:
        """Return what numpy has."""
        return getattr(np, name)


def apply() -> None:
    """Give it to the modules that need it, and to no other."""
    if not hasattr(np, "compat"):
        for module in (data_utils, language_pair_dataset, token_block_dataset):
            vars(module)["np"] = OlderNumpy("numpy")
