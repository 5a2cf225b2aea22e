"""Runtimes and agent CLIs by the runtime's name, imported on use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringfence.errors import UsageError
from ringfence.runtime.base import Runtime

if TYPE_CHECKING:
    from ringfence.runtime.agent_cli.base import AgentCli

_CLI_RUNTIME = "ringfence.runtime.agent_cli.runtime:CliRuntime"
_RUNTIMES = {
    "api": "ringfence.runtime.api:ApiRuntime",
    "claude-cli": _CLI_RUNTIME,
    "claude-sdk": "ringfence.runtime.claude_sdk.runtime:ClaudeSdkRuntime",
    "codex-cli": _CLI_RUNTIME,
}
_CLIS = {
    "claude-cli": "ringfence.runtime.claude.cli:ClaudeCli",
    "claude-sdk": "ringfence.runtime.claude_sdk.runtime:ClaudeSdkCli",
    "codex-cli": "ringfence.runtime.codex.cli:CodexCli",
}


def runtime_names() -> tuple[str, ...]:
    """Return the names that `runtime_class` knows."""
    return tuple(sorted(_RUNTIMES))


def runtime_class(name: str) -> type[Runtime]:
    """Return the class of the runtime `name`.

    Raises:
        UsageError: There is no such runtime.
    """
    if name not in _RUNTIMES:
        raise UsageError(f"there is no runtime {name!r}; there are: {', '.join(runtime_names())}")
    loaded: type[Runtime] = _load(_RUNTIMES[name])
    return loaded


def agent_cli_runtimes() -> tuple[str, ...]:
    """Return the runtimes that `agent_cli_of` knows."""
    return tuple(sorted(_CLIS))


def agent_cli_of(runtime: str) -> "AgentCli":
    """Return the agent CLI that the runtime `runtime` runs.

    Raises:
        UsageError: It runs none.
    """
    if runtime not in _CLIS:
        raise UsageError(f"the runtime {runtime!r} runs no agent CLI; these do: {', '.join(_CLIS)}")
    made: AgentCli = _load(_CLIS[runtime])()
    return made


def _load(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
