"""Arguments of a program that do not fit are one line, with what to write instead."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import Limits, Mount, SandboxSpec
from ringfence.errors import UsageError


@pytest.mark.parametrize(
    ("make", "arguments", "problem"),
    [
        (SandboxSpec, {"memry": "1g"}, "there is no argument 'memry'; did you mean 'memory'?"),
        (SandboxSpec, {"egress": {"alow": []}}, "there is no argument 'egress.alow'; did you mean 'allow'?"),
        (Mount, {"source": "/a", "target": "/b", "zzz": 1}, "the arguments are source, target, read_only"),
        (Limits, {"turn": 3}, "there is no argument 'turn'; did you mean 'turns'?"),
        (SandboxSpec, {"mode": "bund"}, "mode='bund' is not one of 'bind', 'read_only' or 'clone'"),
    ],
    ids=["field", "nested", "nothing near", "limits", "value"],
)
def test_an_argument_that_does_not_fit_is_answered(
    make: Callable[..., Any], arguments: dict[str, Any], problem: str
) -> None:
    """The message names the class, the argument and the nearest one, or all of them."""
    with pytest.raises(UsageError, match=rf"^{make.__name__}: .*{re.escape(problem)}$"):
        make(**arguments)
