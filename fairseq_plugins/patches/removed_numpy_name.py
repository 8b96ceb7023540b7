"""``fairseq-interactive`` with a language model, or ``--sample-break-mode eos``, ends in a stack trace with numpy 2.

fairseq uses ``np.compat.long`` there, which was a name of ``int``.
https://github.com/facebookresearch/fairseq/issues/4945 is about other such names.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from fairseq.data import token_block_dataset


class OlderNumpy(ModuleType):
    """numpy with this name."""

    compat = SimpleNamespace(long=int)

    def __getattr__(self, name: str) -> Any:
        """Return what numpy has."""
        return getattr(np, name)


def apply() -> None:
    """Give it to the module that needs it, and to no other."""
    if hasattr(np, "compat"):
        return
    vars(token_block_dataset)["np"] = OlderNumpy("numpy")
