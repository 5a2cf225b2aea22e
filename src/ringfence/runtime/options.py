"""How an agent is to work, and which runtime can honour what. One table; what a runtime cannot do is an error."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ringfence.config.runtime import PermissionMode, RuntimeName, SettingsSource
from ringfence.config.units import Seconds
from ringfence.errors import UsageError
from ringfence.tool.mcp_server import McpServer

__all__ = [
    "FLAG_OF",
    "SETTING_OF",
    "SUPPORT",
    "Options",
    "PermissionMode",
    "RuntimeName",
    "SettingsSource",
    "check_options",
    "given_options",
]


class Options(BaseModel):
    """How an agent is to work, besides its task. What is not given is the runtime's own way."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system_prompt: str | None = None
    """In place of the runtime's own."""
    system_append: str | None = None
    """Added to the end of the system prompt."""
    tools_allowed: tuple[str, ...] = ()
    """The only tools it may use, by the runtime's names. Empty: all of its own."""
    tools_denied: tuple[str, ...] = ()
    """Tools that it may not use."""
    permission_mode: PermissionMode | None = None
    """What the client may do without being asked. None: `bypass`, as there is a fence."""
    mcp_servers: tuple[McpServer, ...] = ()
    """Started inside the sandbox."""
    plugins: tuple[Path, ...] = ()
    """Directories of the client's plugins, on the host; shown inside, read-only."""
    settings_sources: tuple[SettingsSource, ...] = ()
    """Settings of the client's own that count: hooks, servers and variables that the workspace names (`project`,
    `local`) run inside the fence then. Empty: none."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the answer."""
    cli_path: Path | None = None
    """The client's program on the host, or inside the image. None: it is looked for."""
    cli_args: tuple[str, ...] = ()
    """Further arguments of the client, as they are."""
    idle_timeout_s: Seconds | None = None
    """End a client that says nothing for so long."""
    force: bool = False
    """Try a client whose version is outside of the tested range."""


_ALL: frozenset[RuntimeName] = frozenset({"api", "claude-cli", "claude-sdk", "codex-cli"})
_CLIENTS = _ALL - {"api"}
_CLAUDE: frozenset[RuntimeName] = frozenset({"claude-cli", "claude-sdk"})

SUPPORT: Mapping[str, frozenset[RuntimeName]] = {
    "model": _ALL,
    "max_turns": _ALL,
    "budget": _ALL,
    "resume": _ALL,
    "fork": _ALL,
    "session_id": _CLAUDE,
    "system_prompt": _ALL,
    "system_append": _ALL,
    "tools_allowed": _ALL - {"codex-cli"},
    "tools_denied": _ALL - {"codex-cli"},
    "permission_mode": _CLAUDE,
    "mcp_servers": _ALL,
    "plugins": _CLAUDE,
    "settings_sources": _CLAUDE,
    "output_schema": _CLIENTS,
    "toolset": frozenset({"api"}),
    "python_tools": frozenset({"api", "claude-sdk"}),
    "cli_path": _CLIENTS,
    "cli_args": frozenset({"claude-cli", "codex-cli"}),
    "idle_timeout_s": _CLIENTS,
    "force": _CLIENTS,
}
"""Which runtimes honour an option. One test for each cell."""


SETTING_OF: Mapping[str, str] = {
    "model": "run.model",
    "max_turns": "limits.turns",
    "budget": "limits.cost_usd",
    "system_prompt": "run.system_prompt",
    "system_append": "run.system_append",
    "tools_allowed": "tools.allow",
    "tools_denied": "tools.deny",
    "permission_mode": "client.permission_mode",
    "mcp_servers": "tools.mcp",
    "plugins": "client.plugins",
    "settings_sources": "client.settings_sources",
    "output_schema": "run.output_schema",
    "toolset": "run.toolset",
    "python_tools": "tools.python",
    "cli_path": "client.path",
    "cli_args": "client.args",
    "idle_timeout_s": "client.idle_timeout",
    "force": "client.force",
}
"""The key of the configuration that gives an option; the others are given for one run alone."""


FLAG_OF: Mapping[str, str] = {
    "model": "--model",
    "max_turns": "--max-turns",
    "budget": "--max-cost-usd",
    "system_prompt": "--system-prompt",
    "system_append": "--system-append",
    "tools_allowed": "--allow-tool",
    "tools_denied": "--deny-tool",
    "permission_mode": "--permission-mode",
    "plugins": "--plugin",
    "settings_sources": "--settings-source",
    "output_schema": "--output-schema",
    "toolset": "--toolset",
    "cli_path": "--cli-path",
    "cli_args": "--cli-arg",
    "idle_timeout_s": "--idle-timeout",
    "force": "--force",
}
"""What gives an option on a command line; the others are given in files alone."""


def check_options(runtime: str, given: Iterable[str]) -> None:
    """See that `runtime` honours each option in `given`, which are keys of `SUPPORT`.

    Raises:
        UsageError: It does not; names those that do.
    """
    for option in given:
        able = SUPPORT[option]
        if runtime not in able:
            given_by = ", ".join(names[option] for names in (FLAG_OF, SETTING_OF) if option in names)
            setting = f" ({given_by})" if given_by else ""
            raise UsageError(
                f"the runtime {runtime!r} has no {option}{setting}; leave it out, or take "
                f"--runtime {' or '.join(sorted(able))}"
            )


def given_options(options: Options) -> list[str]:
    """Names of the options that are not at their defaults."""
    return [
        name for name in Options.model_fields if getattr(options, name) != Options.model_fields[name].default
    ]
