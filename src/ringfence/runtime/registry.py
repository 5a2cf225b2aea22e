"""Runtimes by name, imported on use."""

from importlib import import_module

from ringfence.errors import UsageError
from ringfence.runtime.base import Runtime

_RUNTIMES = {
    "api": "ringfence.runtime.api:ApiRuntime",
    "claude-cli": "ringfence.runtime.client.runtime:ClientRuntime",
    "claude-sdk": "ringfence.runtime.claude_sdk.runtime:ClaudeSdkRuntime",
    "codex-cli": "ringfence.runtime.client.runtime:ClientRuntime",
}


def runtime_names() -> tuple[str, ...]:
    """The names that `runtime_class` knows."""
    return tuple(sorted(_RUNTIMES))


def runtime_class(name: str) -> type[Runtime]:
    """The class of the runtime `name`.

    Raises:
        UsageError: There is no such runtime.
    """
    place = _RUNTIMES.get(name)
    if place is None:
        raise UsageError(f"there is no runtime {name!r}; there are: {', '.join(runtime_names())}")
    module, _, attribute = place.partition(":")
    loaded: type[Runtime] = getattr(import_module(module), attribute)
    return loaded
