"""`claude` inside the fence, steered by the Claude Agent SDK on the host: hooks, permissions, tools in this process."""

from collections.abc import Sequence
from typing import Any

import anyio.to_thread

from ringfence.runtime.base import Emit, RuntimeResult, Task
from ringfence.runtime.claude_sdk.client import ClaudeSdkClient
from ringfence.runtime.claude_sdk.installed import check_sdk
from ringfence.runtime.client.base import Launch, ModelWitness, Program, Stream
from ringfence.runtime.client.driving import Bounds, Drive
from ringfence.runtime.client.runtime import ClientRuntime
from ringfence.runtime.limits import Limits
from ringfence.runtime.session import CarriedSession
from ringfence.sandbox import Sandbox
from ringfence.tool.base import Tool


async def check_host(options: Any, *, force: bool = False) -> None:
    """See that the host's part can be had, before anything is made for it.

    Args:
        options: A `ClaudeAgentOptions`; None is one with nothing in it.
        force: Take a version of the SDK that was not tried.

    Raises:
        UsageError: An option of the SDK has no effect here.
        ConfigurationError: It is not installed, or is no version that this release knows.
    """
    await anyio.to_thread.run_sync(lambda: check_sdk(force=force))
    if options is not None:
        from ringfence.runtime.claude_sdk.options import check_options

        check_options(options)


class ClaudeSdkRuntime(ClientRuntime):
    """Runs `claude` inside with the SDK at the other end of its input and output.

    What the SDK calls (hooks, `can_use_tool`, servers made by `create_sdk_mcp_server`) runs in this process, outside
    of the fence, and is in the record before the client is told. Whoever is inside can call such a tool or hook at any
    time and with anything: a permission that was denied keeps the client from it, not what runs beside it.

    Args:
        program: Where `claude` is inside.
        options: A `ClaudeAgentOptions`, of which what runs on the host counts; the rest is refused.
        functions: The user's tools, made with `@tool`.
        limits: As of `ClientRuntime`.
        witness: As of `ClientRuntime`.
        session: As of `ClientRuntime`.
    """

    def __init__(
        self,
        program: Program,
        *,
        options: Any = None,
        functions: Sequence[Tool] = (),
        limits: Limits | None = None,
        witness: ModelWitness | None = None,
        session: CarriedSession | None = None,
    ) -> None:
        super().__init__(ClaudeSdkClient(), program, limits=limits, witness=witness, session=session)
        self._given = options
        self._functions = tuple(functions)
        self._options: Any = None

    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Run the client to its end.

        Raises:
            UsageError: Also: an option of the SDK has no effect here.
            ConfigurationError: Also: it is no version that this release knows.
        """
        await check_host(self._given, force=task.options.force)
        from ringfence.runtime.claude_sdk.options import options_for

        self._options = options_for(self._given, self._functions, sandbox)
        asks = self._options.can_use_tool is not None
        self._client = ClaudeSdkClient(tuple(self._options.mcp_servers), asks=asks)
        return await super().run(task, sandbox, emit)

    def _drive(self, task: Task, stream: Stream, launch: Launch, bounds: Bounds, emit: Emit) -> Drive:
        """What follows the process."""
        from ringfence.runtime.claude_sdk.driving import SdkDrive

        return SdkDrive(
            stream,
            launch,
            bounds,
            emit,
            prompt=task.prompt,
            options=self._options,
            servers=tuple(self._options.mcp_servers),
        )
