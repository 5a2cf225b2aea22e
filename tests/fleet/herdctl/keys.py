"""Every key that herdctl knows, each with a value that differs from its default."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Key:
    """One key: a dotted path, in which `x` is a name of the author's choice and a number is an index of a list."""

    path: str
    value: Any
    beside: dict[str, Any] = field(default_factory=dict)
    """Other keys that must be set for this one to have an effect."""

    def put(self, values: dict[str, Any]) -> None:
        """Set the other keys, and then this one, in the values of a file."""
        for path, value in {**self.beside, self.path: self.value}.items():
            lay(values, path, value)


def lay(values: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at a dotted path, in place."""
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    branch: Any = values
    for part, following in zip(parents, [*parents, last][1:], strict=True):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(part, int):
            branch.extend({} for _ in range(part + 1 - len(branch)))
            branch[part] = branch[part] if isinstance(branch[part], dict | list) else empty
        elif not isinstance(branch.get(part), type(empty)):
            branch[part] = empty
        branch = branch[part]
    if isinstance(last, int):
        branch.extend({} for _ in range(last + 1 - len(branch)))
    branch[last] = deepcopy(value)


_STDIO = {"mcp_servers.x.command": "server"}
_INTERVAL = {"schedules.x.type": "interval", "schedules.x.interval": "5m"}
_CRON = {"schedules.x.type": "cron", "schedules.x.cron": "0 9 * * 1"}
_GITHUB = {"work_source.type": "github", "work_source.repo": "o/r"}
_SHELL = {"hooks.after_run.0.type": "shell", "hooks.after_run.0.command": "true"}
_WEBHOOK = {"hooks.on_error.0.type": "webhook", "hooks.on_error.0.url": "https://hooks.example/x"}
_DISCORD = {
    "hooks.on_error.0.type": "discord",
    "hooks.on_error.0.channel_id": "12",
    "hooks.on_error.0.bot_token_env": "BOT",
}
_SLACK = {"hooks.on_error.0.type": "slack", "hooks.on_error.0.channel_id": "C12"}

FLEET = (
    Key("version", 2),
    Key("fleet.name", "crew"),
    Key("fleet.description", "Does it"),
    Key("working_directory", {"root": "w"}),
    Key("workspace", "w"),
    Key("webhooks", {"enabled": True, "port": 8081, "secret_env": "S"}),
    Key("web", {"enabled": True, "port": 3232}),
    Key("docker", {"enabled": True}),
    Key("chat", {"slack": {}}),
    Key("defaults.runtime", "cli"),
)
"""Keys of a fleet's file."""

AGENT = (
    Key("description", "Reviews"),
    Key("working_directory", "w"),
    Key("working_directory.root", "w"),
    Key("working_directory.auto_clone", False, {"working_directory.root": "w"}),
    Key("working_directory.clone_depth", 2, {"working_directory.root": "w"}),
    Key("working_directory.default_branch", "dev", {"working_directory.root": "w"}),
    Key("workspace", "w"),
    Key("repo", "o/r"),
    Key("identity", {"name": "N", "role": "R", "personality": "P"}),
    Key("system_prompt", "Be kind"),
    Key("default_prompt", "Do it"),
    Key("runtime", "cli"),
    Key("model", "claude-opus-4-5"),
    Key("max_turns", 7),
    Key("session.max_turns", 8),
    Key("session.timeout", "12h"),
    Key("session.model", "claude-opus-4-5"),
    Key("permission_mode", "plan"),
    Key("tools", ["Read", "Bash"]),
    Key("allowed_tools", ["Read"]),
    Key("allowed_tools", ["WebFetch(domain:docs.example)", "WebSearch"]),
    Key("denied_tools", ["WebFetch"]),
    Key("setting_sources", ["project"]),
    Key("mcp_servers.x.type", "http", _STDIO),
    Key("mcp_servers.x.url", "https://mcp.example"),
    Key("mcp_servers.x.command", "server"),
    Key("mcp_servers.x.args", ["-v"], _STDIO),
    Key("mcp_servers.x.env.MODE", "fast", _STDIO),
    Key("mcp_servers.x.env.API_KEY", "${API_KEY}", _STDIO),
    Key("mcp_servers.x.headers", {"A": "b"}, _STDIO),
    Key("mcp_servers.x.timeout", 5000, _STDIO),
    Key("mcp_servers.x.alwaysLoad", True, _STDIO),
    Key("plugins.0", "./plugin"),
    Key("plugins.0.type", "local", {"plugins.0.path": "./plugin"}),
    Key("plugins.0.path", "./plugin", {"plugins.0.type": "local"}),
    Key("plugins.0.skipMcpDiscovery", True, {"plugins.0.type": "local", "plugins.0.path": "./plugin"}),
    Key("schedules.x.type", "webhook"),
    Key("schedules.x.interval", "5m", _INTERVAL),
    Key("schedules.x.cron", "0 9 * * 1", _CRON),
    Key("schedules.x.expression", "0 9 * * 1", {"schedules.x.type": "cron"}),
    Key("schedules.x.prompt", "Now", _INTERVAL),
    Key("schedules.x.enabled", False, _INTERVAL),
    Key("schedules.x.work_source", {"type": "github"}, _INTERVAL),
    Key("schedules.x.outputToFile", True, _INTERVAL),
    Key("schedules.x.resume_session", True, _INTERVAL),
    Key("work_source.repo", "o/r", _GITHUB),
    Key("work_source.type", "other"),
    Key("work_source.labels.ready", "go", _GITHUB),
    Key("work_source.labels.in_progress", "busy", _GITHUB),
    Key("work_source.exclude_labels", ["wip"], _GITHUB),
    Key("work_source.labels.exclude_labels", ["wip"], _GITHUB),
    Key("work_source.cleanup_on_failure", False, _GITHUB),
    Key("work_source.auth.token_env", "GH", _GITHUB),
    Key("instances.max_concurrent", 3),
    Key("hooks.after_run.0.type", "shell", _SHELL),
    Key("hooks.after_run.0.command", "make report", _SHELL),
    Key("hooks.after_run.0.timeout", 5000, _SHELL),
    Key("hooks.after_run.0.name", "report", _SHELL),
    Key("hooks.after_run.0.continue_on_error", False, _SHELL),
    Key("hooks.after_run.0.on_events", ["completed"], _SHELL),
    Key("hooks.after_run.0.when", "metadata.ok", _SHELL),
    Key("hooks.on_error.0.url", "https://hooks.example/y", _WEBHOOK),
    Key("hooks.on_error.0.method", "PUT", _WEBHOOK),
    Key("hooks.on_error.0.headers", {"Authorization": "Bearer ${TOKEN}"}, _WEBHOOK),
    Key("hooks.on_error.0.timeout", 3000, _WEBHOOK),
    Key("hooks.on_error.0.channel_id", "34", _DISCORD),
    Key("hooks.on_error.0.bot_token_env", "OTHER", _DISCORD),
    Key("hooks.on_error.0.channel_id", "C34", _SLACK),
    Key("hooks.on_error.0.bot_token_env", "SLACK", _SLACK),
    Key("docker.enabled", True),
    Key("docker.ephemeral", False),
    Key("docker.memory", "4g"),
    Key("docker.cpu_shares", 512),
    Key("docker.cpu_period", 50_000, {"docker.cpu_quota": 100_000}),
    Key("docker.cpu_quota", 150_000),
    Key("docker.pids_limit", 100),
    Key("docker.tmpfs", ["/run"]),
    Key("docker.labels", {"team": "a"}),
    Key("docker.max_containers", 9),
    Key("docker.workspace_mode", "ro"),
    Key("docker.image", "node:22", {"docker.enabled": True}),
    Key("docker.base_image", "node:22", {"docker.enabled": True}),
    Key("docker.network", "bridge"),
    Key("docker.user", "1000:1000"),
    Key("docker.volumes.0", "/data:/data:ro"),
    Key("docker.env.MODE", "fast"),
    Key("docker.env.GITHUB_TOKEN", "${GITHUB_TOKEN}"),
    Key("docker.ports", ["80:80"]),
    Key("docker.host_config", {"Privileged": True}),
    Key("chat.discord", {"bot_token_env": "D"}),
    Key("chat.slack", {"bot_token_env": "S"}),
    Key("metadata_file", "m.json"),
)
"""Keys of an agent's file, besides its name."""
