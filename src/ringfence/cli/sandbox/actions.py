"""The functions behind the commands about standing sandboxes."""

import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.cli.output import notify
from ringfence.cli.render.summary import how_to_apply
from ringfence.errors import ExitCode, InfrastructureFault, RecordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ringfence.sandbox.protocol.records import Refusal
    from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState

_Result = TypeVar("_Result")


def run_interruptible(work: "Callable[[], Awaitable[_Result]]") -> _Result:
    """Run a coroutine function to its end, and cancel it on a signal.

    Raises:
        KeyboardInterrupt: A signal cancelled it; errors that it raised while it was cancelled are dropped.
    """
    import anyio

    from ringfence.cli.run.execution import handle_interrupts

    results: list[_Result] = []

    async def run_until_signal() -> None:
        is_stopped = False

        def stop() -> None:
            nonlocal is_stopped
            is_stopped = True
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(handle_interrupts, stop)
                results.append(await work())
                tasks.cancel_scope.cancel()
        except Exception:
            if not is_stopped:
                raise

    anyio.run(run_until_signal)
    if not results:
        raise KeyboardInterrupt
    return results[0]


async def clear_dead_sandboxes() -> frozenset[str]:
    """Close the records of dead runs, report dead standing sandboxes and return their names."""
    from ringfence.job.interrupted_runs import recover_runs
    from ringfence.job.standing_sandbox import remove_dead

    await recover_runs(notify)
    gone = remove_dead()
    for sandbox in gone:
        record = f"; its record is run {sandbox.run_id}" if sandbox.run_id else ""
        notify(f"the standing sandbox {sandbox.name!r} has ended ({sandbox.why}){record}")
    return frozenset(sandbox.name for sandbox in gone)


async def find_standing(name: str) -> "SandboxDirectory":
    """Find the directory of a running standing sandbox.

    Raises:
        UsageError: No standing sandbox of that name is running.
    """
    from ringfence.sandbox.supervisor.directory import standing_directory

    directory = standing_directory(name)
    if not directory.is_alive():
        await clear_dead_sandboxes()
        raise UsageError(f"there is no standing sandbox {name!r}; `ringfence sandbox ls` lists them")
    return directory


async def execute_in(
    name: str,
    command: tuple[str, ...],
    env: dict[str, str],
    limit_s: float | None,
    *,
    interactive: bool,
    tty: bool,
) -> int:
    """Run a command in a standing sandbox on this process's streams; return its exit code, or 124 after `limit_s`.

    Raises:
        UsageError: There is no sandbox of that name.
        SandboxDied: The sandbox ended before the command.
    """
    import anyio

    from ringfence.job.command import Stdio, open_null, run_command
    from ringfence.job.state import JobState
    from ringfence.sandbox.supervisor.client import attach

    directory = await find_standing(name)
    with ExitStack() as files:
        stdio = Stdio(
            sys.stdin.buffer if sys.stdin and interactive else None,
            sys.stdout.buffer if sys.stdout else files.enter_context(open_null()),
            sys.stderr.buffer if sys.stderr else files.enter_context(open_null()),
        )
        with anyio.move_on_after(limit_s):
            async with attach(directory, env=env) as sandbox:
                with sandbox.refusals.watched() as refused:
                    if tty:
                        from ringfence.job.terminal import run_on_terminal

                        outcome = await run_on_terminal(command, 0, 1, sandbox, None)
                    else:
                        outcome = await run_command(command, stdio, sandbox, None)
                _report_refused(name, refused)
                if outcome.state is JobState.LIMIT:
                    notify(f"{outcome.reason} of `ringfence sandbox create`")
                return int(outcome.command_exit_code or 0)
    notify(f"the time limit of {limit_s:g} s was reached; raise it with --timeout")
    return ExitCode.TIMED_OUT


def _report_refused(name: str, refusals: "Iterable[Refusal]") -> None:
    """Print requests that were refused while a command ran, as many programs do not report why they failed."""
    for refusal in refusals:
        notify(refusal.line if refusal.grant is None else f"refused: {refusal.line}")
    grants = {refusal.grant for refusal in refusals}
    if "allow" in grants:
        notify(f"`ringfence sandbox allow {name} HOST` allows a host until the sandbox is removed")
    if "undeny" in grants:
        notify(f"`ringfence sandbox allow {name} RULE` takes a rule out of those that deny")


async def change_egress_rule(name: str, action: str, rule: str) -> int:
    """Change which addresses a standing sandbox may reach.

    Raises:
        UsageError: There is no sandbox of that name, or the rule is not valid.
        PolicyRefused: The rule names an address that is never allowed.
    """
    from ringfence.sandbox.supervisor.client import change_egress

    await change_egress(await find_standing(name), action=action, rule=rule)
    if action == "allow" and rule == "open":
        notify(f"WARNING: {name!r} can now reach every public host")
    return 0


async def serve_port(name: str, port: int, host_port: int) -> int:
    """Serve a port of a standing sandbox on this machine's loopback interface, until interrupted.

    Raises:
        UsageError: There is no sandbox of that name, or the port of this machine is in use.
        SandboxDied: The sandbox ended.
    """
    from ringfence.sandbox.supervisor.client import forward_port

    async with forward_port(await find_standing(name), port, host_port=host_port) as (chosen, wait_for_death):
        print(f"http://127.0.0.1:{chosen}/", flush=True)  # noqa: T201 -- typer.echo would import typer
        notify(f"port {port} of {name!r} is served at this address until you press Ctrl-C")
        await wait_for_death()
    return 0


async def remove_standing(name: str) -> None:
    """Stop a standing sandbox and report its changes; clean up after one that has died.

    Raises:
        UsageError: There is no sandbox of that name.
        InfrastructureFault: The supervisor of the sandbox does not end.
    """
    import typer

    from ringfence.sandbox.supervisor.client import end_sandbox
    from ringfence.sandbox.supervisor.directory import standing_directory

    directory = standing_directory(name)
    if not directory.is_alive() and name in await clear_dead_sandboxes():
        typer.echo(name)
        return
    directory = await find_standing(name)
    state = None
    with suppress(RecordError):  # written by another version; the sandbox can still be stopped
        state = directory.read_state()
    if not await end_sandbox(directory):
        process = "" if state is None else f" (process {state.pid})"
        raise InfrastructureFault(
            f"the supervisor of {name!r}{process} does not end; kill it, which also ends everything inside"
        )
    typer.echo(name)
    if state is not None and state.run_id is not None:
        _report_work(state.run_id)


def _report_work(run_id: str) -> None:
    """Print the changes of a sandbox that has ended, as at the end of a run."""
    from ringfence.cli.render.summary import work_lines
    from ringfence.events import JobEnded, WorkExported
    from ringfence.journal import read, run_dir

    for record in read(run_dir(run_id)):
        event = record.event
        if isinstance(event, WorkExported) and (event.files_changed or event.refs):
            hint = how_to_apply(event, run_dir(run_id))
            for line in (
                *(line for line, _ in work_lines(event, run_dir(run_id))),
                *([hint] if hint else ()),
            ):
                notify(line)
        elif isinstance(event, JobEnded) and event.state != "succeeded":
            notify(f"{event.state}: {event.reason}")


def row_of(directory: "SandboxDirectory") -> dict[str, Any]:
    """Build the row of a standing sandbox in the list."""
    state, state_name = None, "starting"
    try:
        state = directory.read_state()
    except RecordError:  # written by another version; the sandbox can be removed
        state_name = "unknown"
    return {
        "name": directory.name,
        "backend": None if state is None else state.facts.backend,
        "state": state_name if state is None else "running",
        **age_of(state),
        "workspace": None if state is None else state.workspace,
    }


def age_of(state: "SupervisorState | None") -> dict[str, Any]:
    """The age of a supervised sandbox, as text and in seconds."""
    from ringfence.config.units import format_duration

    age_s = None if state is None else state.age_s
    return {"age": "-" if age_s is None else format_duration(_coarse(age_s)), "age_s": age_s}


def _coarse(seconds: float) -> float:
    """Round a duration down to its largest unit."""
    for unit in (86_400, 3600, 60):
        if seconds >= unit:
            return seconds // unit * unit
    return float(int(seconds)) or 1.0
