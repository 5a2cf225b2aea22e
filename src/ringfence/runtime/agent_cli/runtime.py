"""Implements the runtime of an agent CLI, which runs inside the sandbox and whose output is read as events."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from ringfence.egress.gateway.provider import PORT_INSIDE, SOCKET_INSIDE
from ringfence.egress.gateway.verdict import Verdict
from ringfence.events import ClientEnded, ClientStarted, Emit, Event, MessageSent, Usage
from ringfence.frozen import frozen
from ringfence.grace import grace
from ringfence.runtime.agent_cli.base import AgentCli, CliPaths, Launch, ModelMonitor, Output, Program
from ringfence.runtime.agent_cli.exit_status import Ended, Ending, Exit, Report, classify_exit, error_of
from ringfence.runtime.agent_cli.process import Bounds, CliProcess
from ringfence.runtime.base import Runtime, RuntimeResult, Task
from ringfence.runtime.limits import Limits
from ringfence.runtime.session import RunSession
from ringfence.sandbox import Sandbox

_FILE_MODE = 0o600
_RECORD_S = 10.0


class CliRuntime(Runtime):
    """Runs an agent CLI. Its turns, usage and cost are counted by the model gateway, not taken from its output.

    Args:
        cli: The agent CLI.
        program: The program inside.
        monitor: Observes its requests to the model and enforces the limits on them.
        limits: The limits of which those on tool calls, counted in its output, are enforced here.
        session: Saves the CLI's session; None: it is not saved.
    """

    def __init__(
        self,
        cli: AgentCli,
        program: Program,
        monitor: ModelMonitor,
        *,
        limits: Limits | None = None,
        session: RunSession | None = None,
    ) -> None:
        self._cli = cli
        self._program = program
        self._monitor = monitor
        self._limits = limits or Limits()
        self._session = session

    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Run the CLI to its end. When this is cancelled, it is first terminated in order.

        Raises:
            LimitReached: A limit on tool calls or of the model gateway; or one of the sandbox ended the CLI.
            InfrastructureFault: Also: it was silent for too long, was killed, or ended without a last message.
        """
        paths, session = paths_in(sandbox, self._program), self._session
        if session is None:
            return (await self._work(task, paths, sandbox, emit)).result(task)
        patterns = self._cli.session_files
        async with session.synchronized(sandbox, self._cli.state_dir(paths), patterns, emit):
            done = await self._work(task, paths, sandbox, emit)
            if done.ended.ending is Ending.NO_SESSION and session.session.resumed_id is not None:
                await session.restart(done.ended.reason, emit)
                done = await self._work(replace(task, session=session.session), paths, sandbox, emit)
        return done.result(task)

    async def _work(self, task: Task, paths: CliPaths, sandbox: Sandbox, emit: Emit) -> "_Done":
        """Run one process of the CLI from its start to its end."""
        launch = self._cli.launch(task, paths)
        await _write(sandbox, launch.files)
        output = self._cli.output()
        earlier = self._monitor.last
        bounds = Bounds(self._monitor.wait_stopped, self._limits, task.options.idle_timeout_s)
        process = self._process(task, output, launch, bounds, self._keeping(output.report, emit))
        await emit(MessageSent(content=task.prompt))
        await emit(
            ClientStarted(
                sandbox_id=sandbox.id,
                client=self._cli.name,
                version=self._program.version or "",
                argv=list(launch.argv),
                files=sorted(launch.files),
            )
        )
        try:
            await process.run(sandbox)
        finally:
            done = self._done(process, output.report, task, earlier)
            if done is not None:
                with grace(), anyio.move_on_after(_RECORD_S):
                    await emit(self._ended(done, process, sandbox))
        assert done is not None
        return done

    def _process(
        self,
        task: Task,  # noqa: ARG002 -- for CLIs that are given their task in another way
        output: Output,
        launch: Launch,
        bounds: Bounds,
        emit: Emit,
    ) -> CliProcess:
        return CliProcess(output, launch, bounds, emit)

    def _keeping(self, report: Report, emit: Emit) -> Emit:
        """Return an `emit` after which the session's files are copied out soon."""
        session = self._session
        if session is None:
            return emit

        async def emit_and_keep(event: Event) -> None:
            await emit(event)
            await session.note_activity(report.session_id)

        return emit_and_keep

    def _done(
        self, process: CliProcess, report: Report, task: Task, earlier: Verdict | None
    ) -> "_Done | None":
        """Return how a process ended; None if that is unknown, as the sandbox is gone.

        Args:
            process: The process.
            report: The report from its output.
            task: Its task.
            earlier: How the last request to the model before its start ended.
        """
        if process.exit is None:
            return None
        last = self._monitor.last
        exit_status = replace(
            process.exit,
            answer_problem=_answer_problem(task.options.output_schema, report.structured_output),
            stopped=self._monitor.stopped,
            verdict=last if last is not earlier else None,
        )
        return _Done(classify_exit(report, exit_status), exit_status, report, self._monitor.turns)

    def _ended(self, done: "_Done", process: CliProcess, sandbox: Sandbox) -> Event:
        return ClientEnded(
            sandbox_id=sandbox.id,
            client=self._cli.name,
            exit_code=done.exit.code,
            ending=done.ended.ending.value,
            reason=done.ended.reason,
            signals=[each.name for each in done.exit.signals],
            stderr=done.exit.stderr,
            turns=done.turns,
            tool_calls=process.tool_calls,
            duration_ms=process.duration_ms,
        )


def paths_in(sandbox: Sandbox, program: Program) -> CliPaths:
    """Return the paths of an agent CLI in a sandbox."""
    return CliPaths(
        program=program.path,
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
    """The end of a process."""

    ended: Ended
    exit: Exit
    report: Report
    turns: int

    def result(self, task: Task) -> RuntimeResult:
        """Return the result for a task.

        Raises:
            RingfenceError: The ending is an error.
        """
        error = error_of(self.ended, self.exit.limit or self.exit.stopped)
        if error is not None:
            raise error
        return RuntimeResult(
            ended_by=self.ended.ending.value,
            final_text=self.report.final_text,
            conversation=task.conversation,
            usage=Usage(),
            turns=self.turns,
            cost_usd=None,
            session_id=self.report.session_id,
            structured_output=self.report.structured_output,
            denied=self.report.denied_tools,
            reason="" if self.ended.ending is Ending.DONE else self.ended.reason,
        )


async def _write(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    async with anyio.create_task_group() as tasks:
        for path, data in files.items():
            tasks.start_soon(partial(sandbox.write_file, path, data, mode=_FILE_MODE))
