"""A standing sandbox is a run whose inside is serving others: its holder keeps the record and brings the work out.

The holder is a process of its own (`sandbox.holder`). What a run does before and after, checkpoints, claiming the
workspace, the private git directory, the patch, is done for a standing sandbox as for any other run.
"""

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import PolicyRefused, RingfenceError, SandboxDied
from ringfence.frozen import frozen
from ringfence.job.lending import with_own_leases
from ringfence.job.model_access import ModelAccess
from ringfence.job.outcome import Outcome
from ringfence.job.request import Emit, RunRequest
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.policy import effective_policy
from ringfence.sandbox.registry import traits_of
from ringfence.sandbox.supervisor.place import claim, places_in, remove_halves, standing_dir, standing_place
from ringfence.sandbox.supervisor.serving import hold
from ringfence.sandbox.supervisor.starting import NotStarted, Order, start_holder, take_order
from ringfence.sandbox.supervisor.state import HolderState, encode_spec, read_state, write_state
from ringfence.secret import KnownSecret

_MODULE = "ringfence.job.standing"


@frozen
class Gone:
    """A standing sandbox that was found dead and is cleared away now."""

    name: str
    why: str
    run_id: str | None


async def create_standing(name: str, request: RunRequest, *, idle_s: float | None) -> NotStarted | None:
    """Start the holder of a new standing sandbox and wait until clients can attach; None if they can.

    Raises:
        UsageError: It is no name, or there is one of that name.
        PolicyRefused: On the bare host: its environment, with your keys, would be kept.
        InfrastructureFault: The state directory cannot be written.
    """
    if not traits_of(request.spec).is_fence:
        raise PolicyRefused(
            "a standing sandbox on the bare host is refused: there is no fence to keep standing; "
            "use --sandbox bubblewrap",
            rule="host-standing",
        )
    place = standing_place(name)
    lock = claim(place)
    try:
        refused = await start_holder(
            _MODULE,
            place,
            lock,
            {"request": _encode(request), "idle_s": idle_s, "environ": _kept_out(request)},
            secrets=request.secrets,
        )
    except BaseException:
        # The holder sees that we have gone, and removes its place if it came so far.
        if not place.is_alive():
            place.remove()
        raise
    if refused is not None:
        place.remove()
    return refused


def clear_the_gone() -> list[Gone]:
    """Remove the places of standing sandboxes whose holder is no more; what they left is for `sweep`."""
    gone = []
    for place in places_in(standing_dir()):
        if place.is_alive():
            continue
        state = None
        why = "what its holder wrote is damaged"
        try:
            state = read_state(place)
            why = state.end[1] if state and state.end else "its holder died"
        except RingfenceError as exc:
            why = str(exc)
        place.remove()
        gone.append(Gone(place.name, why, state.run_id if state else None))
    remove_halves(standing_dir())
    return gone


def main() -> None:
    """The holder process."""
    anyio.run(_hold, take_order())


async def _hold(order: Order) -> None:
    request = _decode(order.fields["request"])
    try:
        async with with_own_leases(request, {**os.environ, **order.fields["environ"]}) as complete:
            await _run(order, complete)
    except RingfenceError as exc:
        _leave(order, str(exc), exc.exit_code)


async def _run(order: Order, request: RunRequest) -> None:
    job: JobRun | None = None

    async def part(sandbox: Sandbox, emit: Emit) -> Outcome:
        assert job is not None
        return await _serve(sandbox, emit, request, order=order, job=job)

    job = JobRun(request, part)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_follow_signals, job)
        tasks.start_soon(_follow_creator, order, job)
        result = await job.run()
        tasks.cancel_scope.cancel()
    _leave(order, result.reason, result.exit_code)


async def _serve(sandbox: Sandbox, emit: Emit, request: RunRequest, *, order: Order, job: JobRun) -> Outcome:
    idle_s = order.fields["idle_s"]
    state = _state_of(sandbox, request, run_id=job.id, idle_s=idle_s)

    async def ready() -> None:
        try:
            await order.say_ready()
        except OSError:  # nobody knows of it
            job.cancel()

    async def change(action: str, rule: str, by: str) -> None:
        nonlocal state
        egress = await job.gates[sandbox.id].change("allow" if action == "allow" else "deny", rule, by=by)
        spec = state.spec.model_copy(update={"egress": egress})
        policy = effective_policy(spec, sandbox.placement, sandbox.facts)
        state = replace(state, spec=spec, policy=policy)
        write_state(order.place, state)

    try:
        end = await hold(
            sandbox,
            order.place,
            state,
            idle_s=idle_s,
            record=emit,
            on_ready=ready,
            change=change,
        )
    except SandboxDied as exc:
        if exc.reason != "ttl":
            raise
        return Outcome(JobState.SUCCEEDED, str(exc))
    if end.reason != "removed":
        write_state(order.place, state.ended(end.reason, f"sandbox {sandbox.id} is gone: {end.detail}"))
    return Outcome(JobState.SUCCEEDED, end.detail)


def _state_of(sandbox: Sandbox, request: RunRequest, *, run_id: str, idle_s: float | None) -> HolderState:
    return HolderState(
        sandbox_id=sandbox.id,
        kind="standing",
        pid=os.getpid(),
        spec=sandbox.spec,
        placement=sandbox.placement,
        facts=sandbox.facts,
        chosen_because=sandbox.chosen_because,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        born_s=time.monotonic(),
        workspace=str(request.workspace),
        run_id=run_id,
        idle_s=idle_s,
        policy=effective_policy(sandbox.spec, sandbox.placement, sandbox.facts),
    )


async def _follow_signals(job: JobRun) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as numbers:
        async for _number in numbers:
            job.cancel()


async def _follow_creator(order: Order, job: JobRun) -> None:
    """A creator that dies, or is interrupted, before it got an answer takes the sandbox with it."""
    await order.creator_gone()
    if not order.is_answered:
        job.cancel()


def _leave(order: Order, reason: str, code: int) -> None:
    """Say what came of it, where somebody still waits; keep the place only if it tells of an end of its own."""
    order.say_failed(reason, code)
    state = read_state(order.place)
    if state is None or state.end is None:
        order.place.remove()


def _kept_out(request: RunRequest) -> Mapping[str, str]:
    """Variables that are not in the holder's environment, for the sources of secrets alone."""
    return {name: value for name, value in os.environ.items() if value in request.secrets}


def _encode(request: RunRequest) -> Mapping[str, Any]:
    fields = {name: getattr(request, name) for name in _FIELDS}
    access = request.model_access
    return {
        **fields,
        "spec": encode_spec(request.spec),
        "model_access": access.encoded() if access is not None else None,
        "wanted": [
            {"name": one.name, "reference": one.reference.model_dump(mode="json")} for one in request.wanted
        ],
    }


def _decode(fields: Mapping[str, Any]) -> RunRequest:
    return RunRequest(
        **{
            **fields,
            "workspace": Path(fields["workspace"]),
            "spec": SandboxSpec.model_validate(fields["spec"]),
            "model_access": ModelAccess.decoded(fields["model_access"]) if fields["model_access"] else None,
            "wanted": [
                KnownSecret(one["name"], SecretReference.model_validate(one["reference"]), True)
                for one in fields["wanted"]
            ],
            "loosenings": tuple((what, by) for what, by in fields["loosenings"]),
        }
    )


_FIELDS = ("prompt", "workspace", "purpose", "loosenings", "secrets", "configuration", "protect", "runtime")
