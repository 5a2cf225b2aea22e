"""A command line client as a runtime: started inside, read from its stdout, judged by more than its own word."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import anyio

from ringfence.egress.gateway.provided import PORT_INSIDE, SOCKET_INSIDE
from ringfence.events import Usage
from ringfence.runtime.base import Emit, Runtime, RuntimeResult, Task
from ringfence.runtime.client.base import Client, Launch, Place, Program, Stream
from ringfence.runtime.client.driving import Bounds, Drive
from ringfence.runtime.client.ending import Ending, Exit, ending_of, error_of
from ringfence.runtime.limits import Limits
from ringfence.sandbox import Sandbox

_OWN_ENDS = frozenset({Ending.DONE, Ending.DENIED, Ending.NO_STRUCTURED_OUTPUT, Ending.CONTEXT, Ending.LIMIT})
_FILE_MODE = 0o600


class ClientRuntime(Runtime):
    """Runs a client. Its usage and cost are not taken from what it says: the model gateway counts them.

    Args:
        client: Which.
        program: Where it is inside.
        limits: Turns and tool calls are counted by what the client tells; it is ended when it goes beyond.
        stopped: Returns when the run is to end for a reason that the caller tells, such as a spent budget.
    """

    def __init__(
        self,
        client: Client,
        program: Program,
        *,
        limits: Limits | None = None,
        stopped: Callable[[], Awaitable[Exception]] | None = None,
    ) -> None:
        self._client = client
        self._program = program
        self._limits = limits or Limits()
        self._stopped = stopped

    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Run the client to its end. When this is cancelled, it is brought down in order first.

        Raises:
            LimitReached: A bound on turns or tool calls; or one of the sandbox ended the client.
            InfrastructureFault: Also: it was silent for too long, was killed, or ended without a last word.
        """
        launch = self._client.launch(task, self.place(sandbox))
        await _write(sandbox, launch.files)
        stream = self._client.stream()
        bounds = Bounds(self._limits, task.options.idle_timeout_s, self._stopped)
        drive = self._drive(task, stream, launch, bounds, emit)
        ended = await drive.run(sandbox)
        if task.options.output_schema is not None:
            ended = replace(ended, wants_structured_output=True)
        return self._result(ended, stream, drive, task)

    def _drive(
        self,
        task: Task,  # noqa: ARG002 -- for clients that are given their task otherwise
        stream: Stream,
        launch: Launch,
        bounds: Bounds,
        emit: Emit,
    ) -> Drive:
        """What follows the process."""
        return Drive(stream, launch, bounds, emit)

    def place(self, sandbox: Sandbox) -> Place:
        """Where the client works."""
        return Place(
            program=self._program.path,
            home=sandbox.facts.home,
            workspace=sandbox.workspace,
            base_url=f"http://127.0.0.1:{PORT_INSIDE}",
            socket=SOCKET_INSIDE,
            is_fence=sandbox.facts.is_fence,
        )

    def _result(self, ended: Exit, stream: Stream, drive: Drive, task: Task) -> RuntimeResult:
        how = ending_of(self._client.name, stream.seen, ended)
        error = error_of(how, ended.limit)
        if error is not None:
            raise error
        return RuntimeResult(
            ended_by=how.ending.value,
            final_text=stream.final_text,
            conversation=task.conversation,
            usage=Usage(),
            turns=drive.counted.turns,
            cost_usd=None,
            session_id=stream.session_id,
            structured_output=stream.structured_output,
            reason="" if how.ending is Ending.DONE else how.reason,
        )


async def _write(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    async with anyio.create_task_group() as tasks:
        for path, data in files.items():
            tasks.start_soon(partial(sandbox.write_file, path, data, mode=_FILE_MODE))
