"""Names of runtimes, and the values of their options."""

from typing import Literal

RuntimeName = Literal["api", "claude-cli", "claude-sdk", "codex-cli"]
_SHORT_NAMES = {"claude": "claude-cli", "codex": "codex-cli"}
PermissionMode = Literal["bypass", "accept_edits", "plan", "deny"]
"""`bypass`: whatever the fence allows. `accept_edits`: edits, but no commands. `plan`: it only reads and plans.
`deny`: only what `tools_allowed` names."""
SettingsSource = Literal["user", "project", "local"]


def full_runtime_name(name: object) -> object:
    """Return `claude-cli` for `claude` and `codex-cli` for `codex`; any other value as it is."""
    return _SHORT_NAMES.get(name, name) if isinstance(name, str) else name
