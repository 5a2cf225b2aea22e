"""Lists the names of runtimes, and the agent CLIs that they run, which are imported on use."""

from importlib import import_module
from typing import TYPE_CHECKING, get_args

from ringfence.config.names import RuntimeName
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.runtime.agent_cli.base import AgentCli
    from ringfence.secret import Provider

_CLIS = {
    "claude-cli": "ringfence.runtime.claude.cli:ClaudeCli",
    "claude-sdk": "ringfence.runtime.claude_sdk.runtime:ClaudeSdkCli",
    "codex-cli": "ringfence.runtime.codex.cli:CodexCli",
}


def runtime_names() -> tuple[str, ...]:
    """Return the names of all runtimes."""
    return tuple(sorted(get_args(RuntimeName)))


def check_runtime(name: str) -> None:
    """Check that there is a runtime `name`.

    Raises:
        UsageError: There is no such runtime.
    """
    if name not in runtime_names():
        raise UsageError(f"there is no runtime {name!r}; there are: {', '.join(runtime_names())}")


def agent_cli_runtimes() -> tuple[str, ...]:
    """Return the runtimes that `agent_cli_of` knows."""
    return tuple(sorted(_CLIS))


def runs_agent_cli(runtime: str) -> bool:
    """Return whether a runtime runs an agent CLI in the sandbox, as opposed to the built-in loop outside of it."""
    return runtime in _CLIS


def provider_of(runtime: str) -> "Provider":
    """Return the provider of a runtime's models."""
    return agent_cli_of(runtime).provider if runs_agent_cli(runtime) else "anthropic"


def agent_cli_of(runtime: str) -> "AgentCli":
    """Return the agent CLI that the runtime `runtime` runs.

    Raises:
        UsageError: It runs no agent CLI.
    """
    if runtime not in _CLIS:
        raise UsageError(f"the runtime {runtime!r} runs no agent CLI; these do: {', '.join(_CLIS)}")
    module, _, attribute = _CLIS[runtime].partition(":")
    made: AgentCli = getattr(import_module(module), attribute)()
    return made
