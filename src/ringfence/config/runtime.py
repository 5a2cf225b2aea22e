"""Names of runtimes, and what their clients can be told, as settings spell them."""

from typing import Literal

RuntimeName = Literal["api", "claude-cli", "claude-sdk", "codex-cli"]
PermissionMode = Literal["bypass", "accept_edits", "plan", "deny"]
"""`bypass`: whatever the fence allows. `accept_edits`: edits, but no commands. `plan`: it only looks and plans.
`deny`: only what `tools_allowed` names."""
SettingsSource = Literal["user", "project", "local"]
