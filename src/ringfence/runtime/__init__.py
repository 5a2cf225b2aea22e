"""Who thinks: the contract of a runtime, our own loop over the Messages API, limits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.runtime.api import ApiRuntime
    from ringfence.runtime.base import Runtime, RuntimeResult, Task
    from ringfence.runtime.conversation import Conversation
    from ringfence.runtime.function import FunctionRuntime
    from ringfence.runtime.limits import Limits, Meter
    from ringfence.runtime.registry import runtime_class, runtime_names

__all__ = [
    "ApiRuntime",
    "Conversation",
    "FunctionRuntime",
    "Limits",
    "Meter",
    "Runtime",
    "RuntimeResult",
    "Task",
    "runtime_class",
    "runtime_names",
]

_HOMES = {
    "ApiRuntime": "api",
    "Conversation": "conversation",
    "FunctionRuntime": "function",
    "Limits": "limits",
    "Meter": "limits",
    "Runtime": "base",
    "RuntimeResult": "base",
    "Task": "base",
    "runtime_class": "registry",
    "runtime_names": "registry",
}


def __getattr__(name: str) -> Any:
    """Import on use: `ringfence --help` must not wait for pydantic."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
