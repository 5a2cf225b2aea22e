"""Runtimes: the contract, the built-in agent loop over the Messages API, and limits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.runtime.base import Task
    from ringfence.runtime.limits import Limits

__all__ = ["Limits", "Task"]

_HOMES = {"Limits": "limits", "Task": "base"}


def __getattr__(name: str) -> Any:
    """Import a name on use, so that `ringfence --help` does not wait for pydantic."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
