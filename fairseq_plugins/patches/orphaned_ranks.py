"""The processes of a training go on, and keep its directory, where torchrun, which started them, was killed.

Nobody restarts them, and nobody waits for their end: the command that is given again finds the directory in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.distributed import utils as distributed_utils

from fairseq_plugins.process import end_with_torchrun


def call_main_until_alone(call_main: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``call_main``, which ends with torchrun if that has started this process; in stock's commands, too."""
    end_with_torchrun()
    return call_main(*args, **kwargs)


WRAPPED = ((distributed_utils, "call_main", call_main_until_alone, 30),)
