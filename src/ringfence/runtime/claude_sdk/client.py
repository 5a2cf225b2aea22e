"""`claude` as the SDK wants it started: its input stays open, and it may ask the host."""

import json
from collections.abc import Sequence
from dataclasses import replace

from ringfence.errors import UsageError
from ringfence.runtime.base import Task
from ringfence.runtime.client.base import Launch, Place
from ringfence.runtime.client.claude import ClaudeClient

_ENVIRONMENT = {
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    # It tells when it has nothing more to do, which its last result does not say.
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
}
_NEVER_ASKS = frozenset({"bypass", "deny"})
_SKIP = "--dangerously-skip-permissions"
_MODE = "--permission-mode="


class ClaudeSdkClient(ClaudeClient):
    """The `claude` program under the SDK's control protocol.

    Args:
        servers: Names of the MCP servers in the host's process.
        asks: Whether the host decides what it may use.
    """

    knows_servers = False  # some are the SDK's options'
    most_task_bytes = None  # the task does not come by stdin

    def __init__(self, servers: Sequence[str] = (), *, asks: bool = False) -> None:
        self._servers = tuple(servers)
        self._asks = asks

    def launch(self, task: Task, place: Place) -> Launch:
        """How to start it. The task is not in it: it comes by the control protocol.

        Raises:
            UsageError: As for the program itself; or a permission mode in which the host is never asked.
        """
        mode = task.options.permission_mode
        if self._asks and mode in _NEVER_ASKS:
            raise UsageError(
                f"permission_mode {mode!r} asks nobody, and can_use_tool is there to be asked; leave one of them out"
            )
        launch = super().launch(task, place)
        argv = [*launch.argv, "--input-format=stream-json"]
        if self._asks:
            argv = [*_asking(argv, is_chosen=mode is not None), "--permission-prompt-tool=stdio"]
        if self._servers:
            known = {"mcpServers": {name: {"type": "sdk", "name": name} for name in self._servers}}
            argv.append(f"--mcp-config={json.dumps(known)}")
        return replace(launch, argv=tuple(argv), env={**launch.env, **_ENVIRONMENT}, stdin=b"")


def _asking(argv: list[str], *, is_chosen: bool) -> list[str]:
    """Arguments with which what is not permitted is asked for, unless a mode was chosen."""
    if is_chosen:
        return argv
    return [*(word for word in argv if word != _SKIP and not word.startswith(_MODE)), f"{_MODE}default"]
