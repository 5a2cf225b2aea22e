"""Defines the options of agents, and which runtime supports them. An option that a runtime lacks is an error."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ringfence.config.names import PermissionMode, RuntimeName, SettingsSource
from ringfence.config.units import Seconds
from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.tool.base import McpServer

__all__ = [
    "SUPPORT",
    "OptionSupport",
    "Options",
    "PermissionMode",
    "RuntimeName",
    "SettingsSource",
    "check_options",
    "given_options",
]


class Options(BaseModel):
    """How an agent should work, besides its task. The runtime decides about options that are not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system_prompt: str | None = None
    """System prompt that replaces the runtime's own."""
    system_append: str | None = None
    """Text that is added to the end of the system prompt."""
    tools_allowed: tuple[str, ...] = ()
    """The only tools that it may use, by the runtime's names. Empty: all tools of the runtime."""
    tools_denied: tuple[str, ...] = ()
    """Tools that it may not use."""
    tools_permitted: tuple[str, ...] = ()
    """Tools that it may use although `tools_allowed` or the permission mode leaves them out."""
    permission_mode: PermissionMode | None = None
    """Actions that the agent CLI may do without permission. None: `bypass`, as there is a fence."""
    mcp_servers: tuple[McpServer, ...] = ()
    """MCP servers that are started inside the sandbox."""
    plugins: tuple[Path, ...] = ()
    """Directories of the agent CLI's plugins, on the host; shown inside, read-only."""
    settings_sources: tuple[SettingsSource, ...] = ()
    """The agent CLI's own settings that apply: hooks, servers and variables that the workspace names (`project`,
    `local`) then take effect inside the fence. Empty: none."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the answer."""
    cli_path: Path | None = None
    """The agent CLI's program on the host, or inside the image. None: it is searched for."""
    cli_args: tuple[str, ...] = ()
    """Further arguments of the agent CLI, unchanged."""
    idle_timeout_s: Seconds | None = None
    """Time without output after which an agent CLI is terminated."""
    force: bool = False
    """Use an agent CLI whose version is outside of the tested range."""


@frozen
class OptionSupport:
    """An option: which runtimes support it, and how it is set."""

    runtimes: frozenset[RuntimeName]
    setting: str = ""
    """The configuration key; empty for an option that can only be set for a single run."""
    flag: str = ""
    """The command-line flag; empty for an option that can only be set in files."""


_ALL: frozenset[RuntimeName] = frozenset({"api", "claude-cli", "claude-sdk", "codex-cli"})
_CLIS = _ALL - {"api"}
_CLAUDE: frozenset[RuntimeName] = frozenset({"claude-cli", "claude-sdk"})

SUPPORT: Mapping[str, OptionSupport] = {
    "model": OptionSupport(_ALL, "run.model", "--model"),
    "max_turns": OptionSupport(_ALL, "limits.turns", "--max-turns"),
    "budget": OptionSupport(_ALL, "limits.cost_usd", "--max-cost-usd"),
    "resume": OptionSupport(_ALL),
    "fork": OptionSupport(_ALL),
    "session_id": OptionSupport(_CLAUDE),
    "system_prompt": OptionSupport(_ALL, "run.system_prompt", "--system-prompt"),
    "system_append": OptionSupport(_ALL, "run.system_append", "--system-append"),
    "tools_allowed": OptionSupport(_ALL - {"codex-cli"}, "tools.allow", "--allow-tool"),
    "tools_denied": OptionSupport(_ALL, "tools.deny", "--deny-tool"),
    "tools_permitted": OptionSupport(_ALL - {"codex-cli"}, "tools.permit", "--permit-tool"),
    "permission_mode": OptionSupport(_CLAUDE, "client.permission_mode", "--permission-mode"),
    "mcp_servers": OptionSupport(_ALL, "tools.mcp"),
    "plugins": OptionSupport(_CLAUDE, "client.plugins", "--plugin"),
    "settings_sources": OptionSupport(_CLAUDE, "client.settings_sources", "--settings-source"),
    "output_schema": OptionSupport(_CLIS, "run.output_schema", "--output-schema"),
    "toolset": OptionSupport(frozenset({"api"}), "run.toolset", "--toolset"),
    "python_tools": OptionSupport(frozenset({"api", "claude-sdk"}), "tools.python"),
    "cli_path": OptionSupport(_CLIS, "client.path", "--cli-path"),
    "cli_args": OptionSupport(frozenset({"claude-cli", "codex-cli"}), "client.args", "--cli-arg"),
    "idle_timeout_s": OptionSupport(_CLIS, "client.idle_timeout", "--idle-timeout"),
    "force": OptionSupport(_CLIS, "client.force", "--force"),
}
"""All options. There is a test for each pair of option and runtime."""


def check_options(runtime: str, given: Iterable[str]) -> None:
    """Check that a runtime supports options.

    Args:
        runtime: The runtime's name.
        given: Keys of `SUPPORT`.

    Raises:
        UsageError: It does not support one of them; the text names runtimes that do.
    """
    for option in given:
        support = SUPPORT[option]
        if runtime not in support.runtimes:
            given_by = ", ".join(name for name in (support.flag, support.setting) if name)
            setting = f" ({given_by})" if given_by else ""
            raise UsageError(
                f"the runtime {runtime!r} has no {option}{setting}; leave it out, or take "
                f"--runtime {' or '.join(sorted(support.runtimes))}"
            )


def given_options(options: Options) -> list[str]:
    """Return the names of the options that are not at their defaults."""
    return [
        name for name in Options.model_fields if getattr(options, name) != Options.model_fields[name].default
    ]
