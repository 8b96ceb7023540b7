"""What a call says that refuses what a user has given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairseq_plugins.errors import UserError


def problems_of(call: Callable[..., object], *given: Any, **named: Any) -> tuple[str, ...]:
    """The problems with which ``call`` refuses what it is given; fails if it does not."""
    with pytest.raises(UserError) as caught:
        call(*given, **named)
    return caught.value.problems


def refused(call: Callable[..., object], *given: Any, **named: Any) -> str:
    """The only problem, which is one line."""
    (problem,) = problems_of(call, *given, **named)
    assert "\n" not in problem
    return problem
