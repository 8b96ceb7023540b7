"""Leave autocast, free where it is off: to enter a disabled context costs as much as several small operations."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def without_autocast(device: str) -> AbstractContextManager[None]:
    """A context in which operations keep the types of their inputs; ``device`` is a type, such as ``cpu``."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
