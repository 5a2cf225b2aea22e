"""A command line client as a runtime: started inside, read from its stdout, judged by more than its own word."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from ringfence.egress.gateway.provider import PORT_INSIDE, SOCKET_INSIDE
from ringfence.egress.gateway.verdict import Verdict
from ringfence.events import ClientEnded, ClientStarted, Event, MessageSent, Usage
from ringfence.frozen import frozen
from ringfence.grace import grace
from ringfence.runtime.base import Emit, Runtime, RuntimeResult, Task
from ringfence.runtime.client.base import Client, Launch, ModelWitness, Place, Program, Stream
from ringfence.runtime.client.driving import Bounds, Drive
from ringfence.runtime.client.ending import Ended, Ending, Exit, ending_of
from ringfence.runtime.client.ending_error import error_of
from ringfence.runtime.client.seen import text_of
from ringfence.runtime.limits import Limits
from ringfence.runtime.session import CarriedSession
from ringfence.sandbox import Sandbox

_FILE_MODE = 0o600
_TELL_S = 10.0
_MOST_DENIED = 100


class ClientRuntime(Runtime):
    """Runs a client. Its turns, usage and cost are not taken from what it says: the model gateway counts them.

    Args:
        client: Which.
        program: Where it is inside.
        limits: Tool calls are counted by what the client tells; it is ended when it goes beyond.
        witness: Sees its requests to the model, and keeps the limits on those; None: nobody does.
        session: What is kept of the client's session; None: nothing.
    """

    def __init__(
        self,
        client: Client,
        program: Program,
        *,
        limits: Limits | None = None,
        witness: ModelWitness | None = None,
        session: CarriedSession | None = None,
    ) -> None:
        self._client = client
        self._program = program
        self._limits = limits or Limits()
        self._witness = witness
        self._session = session

    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Run the client to its end. When this is cancelled, it is brought down in order first.

        Raises:
            LimitReached: A bound on tool calls or of the model gateway; or one of the sandbox ended the client.
            InfrastructureFault: Also: it was silent for too long, was killed, or ended without a last word.
        """
        place, session = self.place(sandbox), self._session
        if session is None:
            return (await self._work(task, place, sandbox, emit)).result(task)
        patterns = self._client.session_files()
        async with session.inside(sandbox, self._client.state_dir(place), patterns, emit):
            done = await self._work(task, place, sandbox, emit)
            if done.judged.ending is Ending.NO_SESSION and session.session.resumed_id is not None:
                await session.lost(done.judged.reason)
                done = await self._work(replace(task, session=session.session), place, sandbox, emit)
        return done.result(task)

    async def _work(self, task: Task, place: Place, sandbox: Sandbox, emit: Emit) -> "_Done":
        """One process of the client, from its start to its end."""
        launch = self._client.launch(task, place)
        await _write(sandbox, launch.files)
        stream = self._client.stream()
        witness = self._witness
        earlier = witness.last if witness is not None else None
        bounds = Bounds(
            self._limits, task.options.idle_timeout_s, witness.wait_stopped if witness is not None else None
        )
        drive = self._drive(task, stream, launch, bounds, self._keeping(stream, emit))
        await emit(MessageSent(content=task.prompt))
        await emit(self._started(launch, sandbox))
        try:
            await drive.run(sandbox)
        finally:
            ended = self._exit(drive, stream, task, earlier)
            if ended is not None:
                judged = ending_of(self._client.name, stream.seen, ended)
                with grace(), anyio.move_on_after(_TELL_S):
                    await emit(self._ended(judged, ended, drive, sandbox))
        assert ended is not None
        return _Done(judged, ended, stream, self._turns)

    def _keeping(self, stream: Stream, emit: Emit) -> Emit:
        """As `emit`, and what the client remembers is brought out soon after."""
        session = self._session
        if session is None:
            return emit

        async def emit_and_keep(event: Event) -> None:
            await emit(event)
            await session.took(stream.session_id)

        return emit_and_keep

    def _started(self, launch: Launch, sandbox: Sandbox) -> Event:
        return ClientStarted(
            sandbox_id=sandbox.id,
            client=self._client.name,
            version=self._program.version or "",
            argv=list(launch.argv),
            files=sorted(launch.files),
        )

    @property
    def _turns(self) -> int:
        return self._witness.turns if self._witness is not None else 0

    def _exit(self, drive: Drive, stream: Stream, task: Task, earlier: Verdict | None) -> Exit | None:
        """What is known of its end; None where nothing is, as the sandbox is gone.

        Args:
            drive: Its process.
            stream: Its output.
            task: What it was to do.
            earlier: What was said of the last request to the model before it was started.
        """
        if drive.exit is None:
            return None
        witness = self._witness
        last = witness.last if witness is not None else None
        return replace(
            drive.exit,
            answer_problem=_answer_problem(task.options.output_schema, stream.structured_output),
            stopped=witness.stopped if witness is not None else None,
            verdict=last if last is not earlier else None,
        )

    def _ended(self, judged: Ended, ended: Exit, drive: Drive, sandbox: Sandbox) -> Event:
        return ClientEnded(
            sandbox_id=sandbox.id,
            client=self._client.name,
            exit_code=ended.code,
            ending=judged.ending.value,
            reason=judged.reason,
            signals=[each.name for each in ended.signals],
            stderr=ended.stderr,
            turns=self._turns,
            tool_calls=drive.counted.tool_calls,
            duration_ms=drive.duration_ms,
        )

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


def _answer_problem(schema: dict[str, Any] | None, answer: object) -> str | None:
    if schema is None:
        return None
    if answer is None:
        return "no structured output"
    from ringfence.tool.schema import answer_problem

    problem = answer_problem(schema, answer)
    return None if problem is None else f"an answer that does not fit: {problem}"


@frozen
class _Done:
    """What a process of the client came to."""

    judged: Ended
    ended: Exit
    stream: Stream
    turns: int

    def result(self, task: Task) -> RuntimeResult:
        """As the contract has it.

        Raises:
            RingfenceError: It did not come to an end of its own.
        """
        error = error_of(self.judged, self.ended.limit or self.ended.stopped)
        if error is not None:
            raise error
        return RuntimeResult(
            ended_by=self.judged.ending.value,
            final_text=self.stream.final_text,
            conversation=task.conversation,
            usage=Usage(),
            turns=self.turns,
            cost_usd=None,
            session_id=self.stream.session_id,
            structured_output=self.stream.structured_output,
            denied=_denied(self.stream),
            reason="" if self.judged.ending is Ending.DONE else self.judged.reason,
        )


async def _write(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    async with anyio.create_task_group() as tasks:
        for path, data in files.items():
            tasks.start_soon(partial(sandbox.write_file, path, data, mode=_FILE_MODE))


def _denied(stream: Stream) -> tuple[str, ...]:
    """Tools that were not permitted, as the last word has them; each once."""
    denials = (stream.seen.final or {}).get("permission_denials")
    found = denials if isinstance(denials, list) else []
    names = (text_of(each.get("tool_name")) for each in found if isinstance(each, dict))
    return tuple(dict.fromkeys(name for name in names if name))[:_MOST_DENIED]
