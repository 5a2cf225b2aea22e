"""How `claude` is started. Seen with 2.1.197, which npm gives to Node 20, 2.1.329 and 2.1.330.

Unattended it trusts whatever the workspace brings: its hooks, its MCP servers, its helper for keys, and even a base
URL that replaces the one in the environment. So only its own (empty) settings count unless others are granted, and
the workspace's CLAUDE.md, which is text for the model, is read as that of an added directory.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from ringfence.egress.gateway.provider import DUMMIES
from ringfence.errors import UsageError
from ringfence.runtime.base import Task
from ringfence.runtime.client.base import Client, Launch, Place, Stream
from ringfence.runtime.client.claude.arguments import check_own, check_unattended, option_arguments
from ringfence.runtime.client.claude.stream import ClaudeStream
from ringfence.runtime.client.claude.tools import check_tools

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
    "DISABLE_AUTOUPDATER": "1",
}
_UNATTENDED = {
    # A server left in the background holds the program for ten minutes after the task; refusals are asked ten times.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_MAX_RETRIES": "4",
    "CLAUDE_CODE_FORWARD_SUBAGENT_TEXT": "1",
    # A prompt may hold what others wrote: of a file named there, such as `@file`, the text would come before the prompt,
    # in words of the program's own.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}
_PERMISSIONS = frozenset({
    "--permission-mode", "--dangerously-skip-permissions", "--allow-dangerously-skip-permissions", "--restricted",
})  # fmt: skip
_DUMMY = DUMMIES["anthropic", "api_key"][1]
_KEY_CHARS = 20
"""By so much of its end it knows a key again."""
_MEMORY_OF_ADDED = {"CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1"}


class ClaudeClient(Client):
    """The `claude` command line program."""

    name = "claude"
    title = "Claude Code"
    tested = ("2.1.197", "2.1.330")
    install = "npm install -g @anthropic-ai/claude-code@2.1.329"
    knows_servers = True
    """Whether all MCP servers are in a task's options."""
    most_task_bytes: int | None = 10 * 1024**2
    """It takes no more on its stdin, as 2.1.197 and 2.1.329 were seen to."""

    def launch(self, task: Task, place: Place) -> Launch:
        """How to start it on a task.

        Raises:
            UsageError: An argument of the task's options that is not the user's to give, too long a schema or task, or
                a tool that claude does not know.
        """
        stdin = task.prompt.encode("utf-8", "replace")
        if self.most_task_bytes is not None and len(stdin) > self.most_task_bytes:
            raise UsageError(
                f"the task has {len(stdin)} bytes, and claude takes at most {self.most_task_bytes}; put what is long "
                "into a file of the workspace, and name that"
            )
        check_unattended(task.options.cli_args)
        check_tools(task.options, knows_servers=self.knows_servers)
        arguments, files, env = option_arguments(task, place, self.state_dir(place))
        argv = (place.program, "-p", "--output-format", "stream-json", "--verbose")
        return Launch(
            argv=(*argv, *arguments, *task.options.cli_args),
            env={**self.environment(place), **_UNATTENDED, **env},
            files=files,
            stdin=stdin,
        )

    def interactive(self, place: Place, args: Sequence[str]) -> Launch:
        """How to start it on a person's terminal; the person has answered its first questions by coming here.

        Raises:
            UsageError: An argument that would lead out of the fence, or cannot work inside.
        """
        is_command = check_own(args)
        ours = [] if is_command else _ours({word.partition("=")[0] for word in args}, place)
        return Launch(
            argv=(place.program, *ours, *args),
            env={**self.environment(place), **_MEMORY_OF_ADDED},
            files={f"{self.state_dir(place)}/.claude.json": _known(place)},
        )

    def stream(self) -> Stream:
        """What reads its output."""
        return ClaudeStream()

    def state_dir(self, place: Place) -> str:
        """Its `CLAUDE_CONFIG_DIR`."""
        return f"{place.home}/.claude"

    def session_files(self) -> tuple[str, ...]:
        """Sessions, with their sub-agents and long results."""
        return ("projects/*/*.jsonl", "projects/*/*/subagents/*", "projects/*/*/tool-results/*")

    def environment(self, place: Place) -> dict[str, str]:
        """What it needs in any case, however it is started. The key, a dummy, comes from the gate."""
        found = {
            **_QUIET,
            "CLAUDE_CONFIG_DIR": self.state_dir(place),
            "ANTHROPIC_BASE_URL": place.base_url,
        }
        if place.socket is not None:
            # The socket counts even where a file of the workspace names another base URL.
            found["ANTHROPIC_UNIX_SOCKET"] = place.socket
        if place.is_fence:
            found["IS_SANDBOX"] = "1"
        return found


def _ours(given: Collection[str], place: Place) -> list[str]:
    """Arguments before a person's own, but for what these decide themselves.

    With `=`, as some take any number of values, and a prompt that follows would be one.
    """
    sources = [] if "--setting-sources" in given else ["--setting-sources=user", "--add-dir=."]
    is_bypassed = place.is_fence and not _PERMISSIONS & set(given)
    # Its own way to decide asks a service of its maker, and refuses where that is not there.
    return [*sources, *(["--dangerously-skip-permissions"] if is_bypassed else [])]


def _known(place: Place) -> bytes:
    """What it remembers of earlier starts: no welcome, no question about the dummy key or what the fence is for."""
    project: Mapping[str, object] = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known: dict[str, object] = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [_DUMMY[-_KEY_CHARS:]], "rejected": []},
        "projects": {place.workspace: project} if place.is_fence else {},
    }
    return json.dumps({**known, "bypassPermissionsModeAccepted": place.is_fence}).encode()
