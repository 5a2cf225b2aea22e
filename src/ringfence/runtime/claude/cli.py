"""Starts `claude`. Observed with 2.1.197, which npm installs for Node 20, 2.1.329 and 2.1.330.

Unattended, it trusts everything in the workspace: hooks, MCP servers, a helper for keys, and even a base URL that
replaces the one in the environment. So only Ringfence's own, empty, settings apply unless others are granted, and the
workspace's CLAUDE.md, which is text for the model, is read as that of an added directory.

The module that searches the user's own directory is imported only if the user's settings apply.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.egress.gateway.provider import DUMMY_CREDENTIALS
from ringfence.errors import UsageError
from ringfence.runtime.agent_cli.base import AgentCli, CliPaths, Launch, Output
from ringfence.runtime.base import Task
from ringfence.runtime.claude.arguments import (
    SKIP_PERMISSIONS,
    TaskArguments,
    check_interactive_arguments,
    check_options,
    is_program_command,
    settings_arguments,
)
from ringfence.runtime.claude.exit_status import ClaudeReport
from ringfence.runtime.claude.transcript import ClaudeTranslator
from ringfence.runtime.options import Options

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
    "DISABLE_AUTOUPDATER": "1",
}
_UNATTENDED = {
    # A server in the background delays the program's exit for ten minutes; refusals are retried ten times.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_MAX_RETRIES": "4",
    "CLAUDE_CODE_FORWARD_SUBAGENT_TEXT": "1",
    # A prompt may contain text of others. If that named a file, such as `@file`, the program would put the file's text
    # before the prompt, in its own words.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}
_PERMISSION_FLAGS = frozenset({
    "--permission-mode", SKIP_PERMISSIONS, "--allow-dangerously-skip-permissions", "--restricted",
})  # fmt: skip
_DUMMY = DUMMY_CREDENTIALS["anthropic", "api_key"][1]
_KEY_CHARS = 20
"""Number of characters at the end by which it recognizes a key."""
_MEMORY_OF_ADDED = {"CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1"}

_OWN_FOLDERS = ("agents", "commands", "skills", "output-styles", "rules")
_OWN_SETTINGS = frozenset({
    "alwaysThinkingEnabled", "attribution", "autoCompactEnabled", "cleanupPeriodDays", "editorMode", "effortLevel",
    "includeCoAuthoredBy", "language", "model", "outputStyle", "permissions", "spinnerTipsEnabled", "theme", "verbose",
})  # fmt: skip
"""A closed list, without credentials, history, sessions, hooks, servers and variables."""
_MAX_OWN_FILES = 300
_MAX_OWN_FILE_BYTES = 256 * 1024
_MAX_OWN_BYTES = 4 * 1024**2


class ClaudeCli(AgentCli):
    """The `claude` command line program."""

    name = "claude"
    title = "Claude Code"
    provider = "anthropic"
    tested = ("2.1.197", "2.1.330")
    install = "npm install -g @anthropic-ai/claude-code@2.1.329"
    folder = ".claude"  # its CLAUDE_CONFIG_DIR
    session_files = ("projects/*/*.jsonl", "projects/*/*/subagents/*", "projects/*/*/tool-results/*")
    author_tools = (
        "Bash", "Edit", "EnterWorktree", "LSP", "Monitor", "NotebookEdit", "PowerShell", "REPL", "Workflow", "Write",
    )  # fmt: skip
    max_task_bytes: int | None = 10 * 1024**2
    """The limit for its stdin, as observed with 2.1.197 and 2.1.329."""
    knows_mcp_servers = True
    """Whether the task's options name all MCP servers."""

    def check(self, prompt: str, options: Options) -> None:
        """Check that it can be started on a task.

        Raises:
            UsageError: An argument is reserved, the schema or task is too long, or claude has no such tool.
        """
        size = len(prompt.encode("utf-8", "replace"))
        if self.max_task_bytes is not None and size > self.max_task_bytes:
            raise UsageError(
                f"the task has {size} bytes, and claude takes at most {self.max_task_bytes}; put long texts "
                "into a file of the workspace, and name the file"
            )
        check_options(options, knows_mcp_servers=self.knows_mcp_servers)

    def launch(self, task: Task, paths: CliPaths) -> Launch:
        """Return how to start it on a task.

        Raises:
            UsageError: As `check`.
        """
        self.check(task.prompt, task.options)
        mode = task.options.permission_mode or self.default_permission_mode(task.options, paths)
        arguments = TaskArguments(task, f"{self.state_dir(paths)}/ringfence", mode)
        return Launch(
            argv=(
                *(paths.program, "-p", "--output-format", "stream-json", "--verbose"),
                *arguments.argv,
                *task.options.cli_args,
                *self.input_arguments(),
            ),
            env={**self.environment(paths), **_UNATTENDED, **arguments.env},
            files=arguments.files,
            stdin=self.input(task),
        )

    def default_permission_mode(self, options: Options, paths: CliPaths) -> str | None:
        """Return the permission mode if the options choose none; None: claude's own."""
        if not paths.is_fence:
            return None
        return "deny" if options.tools_allowed else "bypass"

    def input_arguments(self) -> tuple[str, ...]:
        """Return the arguments that determine how it receives its task, besides stdin."""
        return ()

    def input(self, task: Task) -> bytes:
        """Return what is sent to its stdin."""
        return task.prompt.encode("utf-8", "replace")

    def check_interactive(self, args: Sequence[str]) -> None:
        """Check a user's own arguments.

        Raises:
            UsageError: An argument would lead out of the fence, or cannot work inside.
        """
        check_interactive_arguments(args)

    def interactive(self, paths: CliPaths, args: Sequence[str], options: Options) -> Launch:
        """Return how to start it on a user's terminal; using ringfence answers its first questions.

        Args:
            paths: Its paths inside.
            args: The user's own arguments.
            options: Options that say whose settings apply; for `user`, the launch has copies of the user's own files.

        Raises:
            UsageError: As `check_interactive`.
        """
        self.check_interactive(args)
        files = {".claude.json": _first_answers(paths)}
        if "user" in options.settings_sources:
            from ringfence.runtime.transcript.discovery import claude_home

            files |= own_files(claude_home())
        flags = {word.partition("=")[0] for word in args}
        ours = [] if is_program_command(args) else _interactive_arguments(flags, paths, options)
        folder = self.state_dir(paths)
        return Launch(
            argv=(paths.program, *ours, *args),
            env={**self.environment(paths), **_MEMORY_OF_ADDED},
            files={f"{folder}/{name}": data for name, data in files.items()},
        )

    def output(self) -> Output:
        """Return a reader of its output."""
        return Output(ClaudeTranslator("claude:stdout", is_output=True), ClaudeReport())

    def environment(self, paths: CliPaths) -> dict[str, str]:
        """Return the variables that it always needs. The gate provides a dummy key."""
        found = {
            **_QUIET,
            "CLAUDE_CONFIG_DIR": self.state_dir(paths),
            "ANTHROPIC_BASE_URL": paths.base_url,
        }
        if paths.socket is not None:
            # The socket takes precedence even if a file of the workspace names another base URL.
            found["ANTHROPIC_UNIX_SOCKET"] = paths.socket
        if paths.is_fence:
            found["IS_SANDBOX"] = "1"
        return found


def _interactive_arguments(given: Collection[str], paths: CliPaths, options: Options) -> list[str]:
    """Return the arguments before a user's own, except those that the user's own decide."""
    sources = [] if "--setting-sources" in given else settings_arguments(options)
    is_bypassed = paths.is_fence and not _PERMISSION_FLAGS & set(given)
    # Its automatic mode queries a service of its maker, and refuses if that is not available.
    return [*sources, *([SKIP_PERMISSIONS] if is_bypassed else [])]


def _first_answers(paths: CliPaths) -> bytes:
    """Return its memory of earlier starts: no welcome, no questions about the dummy key, the folder or permissions."""
    project: Mapping[str, object] = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known: dict[str, object] = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [_DUMMY[-_KEY_CHARS:]], "rejected": []},
        "projects": {paths.workspace: project} if paths.is_fence else {},
    }
    return json.dumps({**known, "bypassPermissionsModeAccepted": paths.is_fence}).encode()


def own_files(home: Path) -> dict[str, bytes]:
    """Return copies of a user's own claude files that may be shown inside: how to work, never the user's identity.

    Files that are too large are left out.

    Args:
        home: The user's own directory of the CLI, on the host.

    Returns:
        The files by their paths below that directory.
    """
    found: dict[str, bytes] = {}
    room = _MAX_OWN_BYTES
    for path in _own_candidates(home):
        try:
            data = path.read_bytes() if path.stat().st_size <= _MAX_OWN_FILE_BYTES else b""
        except OSError:
            continue
        if path.name == "settings.json" and path.parent == home:
            data = _harmless_settings(data)
        room -= len(data)
        if data and room >= 0 and len(found) < _MAX_OWN_FILES:
            found[str(path.relative_to(home))] = data
    return found


def _own_candidates(home: Path) -> Iterator[Path]:
    yield home / "CLAUDE.md"
    yield home / "settings.json"
    for folder in _OWN_FOLDERS:
        for path in sorted((home / folder).rglob("*")):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(home).parts):
                yield path


def _harmless_settings(data: bytes) -> bytes:
    """Return only the settings that are preferences, and those for actions that are permitted without a question."""
    try:
        read: Any = json.loads(data)
    except ValueError:
        return b""
    if not isinstance(read, dict):
        return b""
    return json.dumps({key: value for key, value in read.items() if key in _OWN_SETTINGS}).encode()
