"""Clients by the names of their runtimes, imported on use."""

from importlib import import_module

from ringfence.errors import UsageError
from ringfence.runtime.client.base import Client

_CLIENTS = {
    "claude-cli": "ringfence.runtime.client.claude:ClaudeClient",
    "claude-sdk": "ringfence.runtime.claude_sdk.client:ClaudeSdkClient",
    "codex-cli": "ringfence.runtime.client.codex:CodexClient",
}


def client_runtimes() -> tuple[str, ...]:
    """The runtimes that `client_of` knows."""
    return tuple(sorted(_CLIENTS))


def client_of(runtime: str) -> Client:
    """The client that the runtime `runtime` is made of.

    Raises:
        UsageError: It is made of none.
    """
    place = _CLIENTS.get(runtime)
    if place is None:
        raise UsageError(f"the runtime {runtime!r} is no client; these are: {', '.join(client_runtimes())}")
    module, _, attribute = place.partition(":")
    client: Client = getattr(import_module(module), attribute)()
    return client
