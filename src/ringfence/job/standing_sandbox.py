"""Manages standing sandboxes: runs that serve clients, each in a supervisor process (`sandbox.supervisor`).

The supervisor writes the record and delivers the work. The steps before and after (checkpoints, locking the workspace,
the private git directory, the patch) are the same as for any other run.
"""

import os
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime

import anyio

from ringfence.errors import PolicyRefused, RingfenceError, SandboxDied
from ringfence.events import Emit
from ringfence.frozen import frozen
from ringfence.job.credentials import with_own_leases
from ringfence.job.outcome import Outcome
from ringfence.job.request import RunRequest
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.sandbox import Sandbox
from ringfence.sandbox.policy import effective_policy
from ringfence.sandbox.registry import traits_of
from ringfence.sandbox.supervisor.directory import (
    SupervisorState,
    list_directories,
    remove_remnants,
    standing_directory,
    standing_root,
)
from ringfence.sandbox.supervisor.launcher import Order, StartFailure, start_supervisor
from ringfence.sandbox.supervisor.server import serve_sandbox

_MODULE = "ringfence.job.standing_sandbox"


@frozen
class DeadSandbox:
    """A standing sandbox whose supervisor was found dead, and whose directory was removed."""

    name: str
    why: str
    run_id: str | None


async def create_standing(name: str, request: RunRequest, *, idle_s: float | None) -> StartFailure | None:
    """Start the supervisor of a new standing sandbox and wait until clients can attach; return None if they can.

    Raises:
        UsageError: The name is invalid, or already in use.
        PolicyRefused: On the bare host, where its environment, with the user's keys, would be kept.
        InfrastructureFault: The state directory cannot be written.
    """
    if not traits_of(request.spec).is_fence:
        raise PolicyRefused(
            "a standing sandbox on the bare host is refused: there is no fence to keep standing; "
            "use --sandbox bubblewrap",
            rule="host-standing",
        )
    order = {
        "request": request,
        "idle_s": idle_s,
        # Left out of the supervisor's environment, as only the sources of secrets need them.
        "environ": {name: value for name, value in os.environ.items() if value in request.secrets},
    }
    directory = standing_directory(name)
    lock = directory.claim()
    try:
        failure = await start_supervisor(_MODULE, directory, lock, order, secrets=request.secrets)
    except BaseException:
        # The supervisor notices that its creator is gone, and removes its directory if it has got that far.
        directory.remove_if_dead()
        raise
    if failure is not None:
        directory.remove_if_dead()
    return failure


def remove_dead() -> list[DeadSandbox]:
    """Remove directories of standing sandboxes whose supervisor died; `recover_runs` removes their other leftovers."""
    dead = []
    for directory in list_directories(standing_root()):
        if directory.is_alive():
            continue
        state = None
        why = "its supervisor died"
        try:
            state = directory.read_state()
            why = state.end[1] if state and state.end else why
        except RingfenceError as exc:
            why = str(exc)
        directory.remove_if_dead()
        dead.append(DeadSandbox(directory.name, why, state.run_id if state else None))
    remove_remnants(standing_root())
    return dead


def main() -> None:
    """The supervisor process."""
    anyio.run(_supervise, Order())


async def _supervise(order: Order) -> None:
    try:
        environ = {**os.environ, **order.fields["environ"]}
        async with with_own_leases(order.fields["request"], environ) as request:
            await _run(order, request)
    except RingfenceError as exc:
        _leave(order, str(exc), exc.exit_code)


async def _run(order: Order, request: RunRequest) -> None:
    job: JobRun | None = None

    async def serve(sandbox: Sandbox, emit: Emit) -> Outcome:
        assert job is not None
        return await _serve(sandbox, emit, request, order=order, job=job)

    job = JobRun(request.running(serve))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_follow_signals, job)
        tasks.start_soon(_follow_creator, order, job)
        result = await job.run()
        tasks.cancel_scope.cancel()
    _leave(order, result.reason, result.exit_code)


async def _serve(sandbox: Sandbox, emit: Emit, request: RunRequest, *, order: Order, job: JobRun) -> Outcome:
    idle_s = order.fields["idle_s"]
    placement = sandbox.placement
    state = SupervisorState(
        sandbox_id=sandbox.id,
        pid=os.getpid(),
        spec=sandbox.spec,
        facts=sandbox.facts,
        chosen_because=sandbox.chosen_because,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        started_s=time.monotonic(),
        directory_inside=sandbox.workspace,
        source=None if placement.workspace_source is None else str(placement.workspace_source),
        workspace=str(request.workspace),
        run_id=job.id,
        idle_s=idle_s,
        policy=effective_policy(sandbox.spec, placement, sandbox.facts),
    )

    async def ready() -> None:
        try:
            order.report_ready()
        except OSError:  # its creator is gone
            job.cancel()

    async def change(action: str, rule: str, by: str) -> None:
        nonlocal state
        egress = await job.gates[sandbox.id].change("allow" if action == "allow" else "deny", rule, by=by)
        spec = state.spec.model_copy(update={"egress": egress})
        state = replace(state, spec=spec, policy=effective_policy(spec, placement, sandbox.facts))
        order.directory.write_state(state)

    try:
        end = await serve_sandbox(
            sandbox,
            order.directory,
            state,
            idle_s=idle_s,
            record=emit,
            on_ready=ready,
            change_egress=change,
        )
    except SandboxDied as exc:
        if exc.reason != "ttl":
            raise
        return Outcome(JobState.SUCCEEDED, str(exc))
    if end.reason != "removed":
        order.directory.note_end(state, end.reason, f"sandbox {sandbox.id} is gone: {end.detail}")
    return Outcome(JobState.SUCCEEDED, end.detail)


async def _follow_signals(job: JobRun) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as numbers:
        async for _number in numbers:
            job.cancel()


async def _follow_creator(order: Order, job: JobRun) -> None:
    """End the sandbox if its creator dies, or is interrupted, before it got a response."""
    await order.wait_for_creators_end()
    if not order.is_answered:
        job.cancel()


def _leave(order: Order, reason: str, code: int) -> None:
    """Keep the directory only if it records an end; then report the end, if a creator still waits."""
    try:
        state = order.directory.read_state()
        if state is None or state.end is None:
            order.directory.remove()
    finally:
        order.report_failure(reason, code)
