"""Runs `claude` inside the fence under the Claude Agent SDK on the host, with hooks, permissions and tools there."""

import json
from collections.abc import Sequence
from typing import Any

import anyio.to_thread

from ringfence.errors import ConfigurationError, UsageError
from ringfence.events import Emit
from ringfence.runtime.agent_cli.base import CliPaths, Launch, ModelMonitor, Output, Program
from ringfence.runtime.agent_cli.process import Bounds, CliProcess
from ringfence.runtime.agent_cli.program import is_tested
from ringfence.runtime.agent_cli.runtime import CliRuntime
from ringfence.runtime.base import RuntimeResult, Task
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.limits import Limits
from ringfence.runtime.options import Options
from ringfence.runtime.session import RunSession
from ringfence.sandbox import Sandbox
from ringfence.tool.base import Tool

OLDEST, NEWEST = "0.2.186", "0.2.187"
"""The tested versions of the SDK. Its class `Transport` may change with any release, as its documentation says. The
extra installs the oldest, since each SDK includes another `claude`, which has a separate range of versions."""
INSTALL = "pip install 'ringfence[claude-sdk]'"

_TRANSPORT = frozenset({"connect", "write", "read_messages", "close", "is_ready", "end_input"})
_NEEDED = ("ClaudeAgentOptions", "ClaudeSDKClient", "McpSdkServerConfig")
_ENVIRONMENT = {
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    # Makes it report when it has no more work, which its last result does not show.
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
}
_NEVER_ASKS = frozenset({"bypass", "deny"})


def check_sdk(*, force: bool = False) -> None:
    """Check that the SDK can be used. Imports the SDK, which takes most of a second.

    Args:
        force: Accept a version that was not tested.

    Raises:
        ConfigurationError: It is not installed, its version was not tested, or its transport has another shape than the
            one that this release implements.
    """
    try:
        import claude_agent_sdk
    except ImportError as missing:
        raise ConfigurationError(
            f"the runtime 'claude-sdk' needs the package claude-agent-sdk; install it with: {INSTALL}"
        ) from missing
    check_version(str(getattr(claude_agent_sdk, "__version__", "unknown")), force=force)
    check_shape(claude_agent_sdk)


def check_version(version: str, *, force: bool) -> None:
    """Check that a version of the SDK was tested.

    Raises:
        ConfigurationError: It was not, and `force` is False.
    """
    if force or is_tested(version, OLDEST, NEWEST):
        return
    raise ConfigurationError(
        f"claude-agent-sdk {version} was not tested with this release, which supports {OLDEST} to {NEWEST}; "
        f"install it with: {INSTALL}, or try it with --force"
    )


def check_shape(sdk: Any) -> None:
    """Check that the SDK has the classes that this release uses; `--force` does not override this.

    Raises:
        ConfigurationError: It lacks one of them.
    """
    absent = [name for name in _NEEDED if not hasattr(sdk, name)]
    methods: frozenset[str] = getattr(getattr(sdk, "Transport", None), "__abstractmethods__", frozenset())
    if not absent and methods == _TRANSPORT:
        return
    what = (
        f"has no {absent[0]}" if absent else f"has another Transport: {', '.join(sorted(methods)) or 'none'}"
    )
    raise ConfigurationError(f"claude-agent-sdk {what}; install one that this release supports: {INSTALL}")


async def check_host(options: Any, *, force: bool = False) -> None:
    """Check the host's part before anything is created for it.

    Args:
        options: A `ClaudeAgentOptions`; None stands for an empty one.
        force: Accept a version of the SDK that was not tested.

    Raises:
        UsageError: An option of the SDK has no effect here.
        ConfigurationError: It is not installed, or its version is not supported.
    """
    await anyio.to_thread.run_sync(lambda: check_sdk(force=force))
    if options is not None:
        from ringfence.runtime.claude_sdk.host import check_options

        check_options(options)


class ClaudeSdkCli(ClaudeCli):
    """The `claude` program under the SDK's control protocol: its input stays open, and it may ask the host.

    Args:
        servers: Names of the MCP servers in the host's process.
        asks: Whether the host decides which tools it may use.
    """

    knows_mcp_servers = False  # the SDK's options may name more
    max_task_bytes = None  # the SDK sends the task

    def __init__(self, servers: Sequence[str] = (), *, asks: bool = False) -> None:
        self._servers = tuple(servers)
        self._asks = asks

    def check(self, prompt: str, options: Options) -> None:
        """Check that it can be started on a task.

        Raises:
            UsageError: As for the program itself; or a permission mode in which the CLI never asks the host.
        """
        if self._asks and options.permission_mode in _NEVER_ASKS:
            raise UsageError(
                f"permission_mode {options.permission_mode!r} never asks the host, so can_use_tool would have no "
                "effect; leave one of them out"
            )
        super().check(prompt, options)

    def default_permission_mode(self, options: Options, paths: CliPaths) -> str | None:
        """Return a mode in which the CLI asks for permission, if the host decides."""
        return "default" if self._asks else super().default_permission_mode(options, paths)

    def input_arguments(self) -> tuple[str, ...]:
        """Return the arguments of the control protocol, by which the SDK sends the task."""
        arguments = ["--input-format=stream-json"]
        if self._asks:
            arguments.append("--permission-prompt-tool=stdio")
        if self._servers:
            known = {"mcpServers": {name: {"type": "sdk", "name": name} for name in self._servers}}
            arguments.append(f"--mcp-config={json.dumps(known)}")
        return tuple(arguments)

    def input(self, task: Task) -> bytes:  # noqa: ARG002 -- the SDK sends it
        """Return nothing: the SDK sends the task."""
        return b""

    def environment(self, paths: CliPaths) -> dict[str, str]:
        """Return the variables of the program, and those of the control protocol."""
        return {**super().environment(paths), **_ENVIRONMENT}


class ClaudeSdkRuntime(CliRuntime):
    """Runs `claude` inside with the SDK at the other end of its input and output.

    Functions that the SDK calls (hooks, `can_use_tool`, servers made by `create_sdk_mcp_server`) run in this process,
    outside of the fence, and are recorded before the CLI receives the answer. Any process inside can call such a tool or
    hook at any time with any arguments: a denied permission restricts the CLI, but not other processes beside it.

    Args:
        program: The program inside.
        monitor: As for `CliRuntime`.
        options: A `ClaudeAgentOptions`, of which only options for the host are accepted; the rest is refused.
        functions: The user's tools, made with `@tool`.
        limits: As for `CliRuntime`.
        session: As for `CliRuntime`.
    """

    def __init__(
        self,
        program: Program,
        monitor: ModelMonitor,
        *,
        options: Any = None,
        functions: Sequence[Tool] = (),
        limits: Limits | None = None,
        session: RunSession | None = None,
    ) -> None:
        super().__init__(ClaudeSdkCli(), program, monitor, limits=limits, session=session)
        self._given = options
        self._functions = tuple(functions)
        self._options: Any = None

    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Run the CLI to its end.

        Raises:
            UsageError: Also: an option of the SDK has no effect here.
            ConfigurationError: Also: its version is not supported.
        """
        await check_host(self._given, force=task.options.force)
        from ringfence.runtime.claude_sdk.host import options_for

        self._options = options_for(self._given, self._functions, sandbox)
        asks = self._options.can_use_tool is not None
        self._cli = ClaudeSdkCli(tuple(self._options.mcp_servers), asks=asks)
        return await super().run(task, sandbox, emit)

    def _process(self, task: Task, output: Output, launch: Launch, bounds: Bounds, emit: Emit) -> CliProcess:
        from ringfence.runtime.claude_sdk.host import SdkProcess

        return SdkProcess(
            output,
            launch,
            bounds,
            emit,
            prompt=task.prompt,
            options=self._options,
        )
