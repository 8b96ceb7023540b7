"""The line of a call that refuses a user's input."""

from collections.abc import Callable
from typing import Any

import pytest

from fairseq_plugins.errors import UserError
from fairseq_plugins.process import users_mistake


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


def line_of(call: Callable[..., object], *given: Any, **named: Any) -> str | None:
    """The line in which a command ends that makes this call; None if it keeps its trace."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  (which one is fairseq's choice)
        call(*given, **named)
    mistake = users_mistake(caught.value)
    if mistake is None:
        return None
    assert "\n" not in str(mistake)
    return str(mistake)
