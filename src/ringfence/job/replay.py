"""A recorded run held again: recorded model, fresh sandbox from the same checkpoint, every tool executed again."""

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import Diverged, LimitReached, RecordError
from ringfence.events import CheckpointCreated, CommandEnded, Event, JobCreated, JobEnded, ModelReplied
from ringfence.frozen import frozen
from ringfence.job.agent import system_of
from ringfence.job.command import Stdio, open_null, run_command
from ringfence.job.continuing import conversation_of
from ringfence.job.model_access import ModelAccess
from ringfence.job.recorder import View
from ringfence.job.replayed_model import ReplayedModel
from ringfence.job.request import AgentRequest
from ringfence.journal import read, resolve
from ringfence.runtime.api import ApiRuntime
from ringfence.runtime.base import Task
from ringfence.runtime.differing import text_difference
from ringfence.runtime.limits import Limits
from ringfence.runtime.recorded import RecordedModel, RecordOver
from ringfence.runtime.volatile import masked
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.workspace.replica import replica_of
from ringfence.sandbox.workspace.work import load_record
from ringfence.secret.redact import REPLACEMENT
from ringfence.tool.toolset import open_toolset


@frozen
class ReplayResult:
    """What a replay came to."""

    turns: int
    """Replies to the agent's loop served from the record."""
    tolerated: tuple[str, ...]
    """Differences that were passed over: durations, times, addresses, temporary names."""
    divergence: str | None
    """The first difference, with its turn; None if there was none."""
    ended: str | None = None
    """How the record ends, where it ends before the agent did; the replay is held as far as that."""
    exchanges: int = 0
    """Requests from inside, by the model gateway, served from the record."""


@frozen
class _Recorded:
    """A record, as far as a replay goes by it."""

    run: Path
    events: tuple[Event, ...]
    created: JobCreated
    start: str
    mode: str

    @property
    def ended(self) -> JobEnded | None:
        """Its last event; None: it was interrupted."""
        return next((event for event in self.events if isinstance(event, JobEnded)), None)

    @property
    def end(self) -> str:
        """How it ends, for people."""
        end = self.ended
        return "the run was interrupted" if end is None else f"{end.state}: {end.reason}"


async def replay_run(
    run: Path,
    spec: SandboxSpec,
    request: AgentRequest | None,
    *,
    access: ModelAccess | None = None,
    wall_clock_s: float | None = None,
    is_exact: bool = False,
    view: View | None = None,
) -> ReplayResult:
    """Hold the run in `run` again.

    Args:
        run: Its directory.
        spec: The sandbox it had.
        request: Its toolset and tools; the model in it is not asked. None: it was of one command.
        access: What those inside could ask of models, without credentials: what they asked is answered from the record.
        wall_clock_s: How long a command may take; a conversation is bounded by its record.
        is_exact: Count also differences in durations, times and the like.
        view: Is shown the events.

    Raises:
        RecordError: The record is damaged, or its checkpoint is gone.
    """
    recorded = _load(run)
    model = ReplayedModel(recorded.events, access, is_exact=is_exact)

    async def emit(event: Event) -> None:
        model.count(event)
        if view is not None:
            await view(event)

    result = ReplayResult(0, (), None)
    try:
        async with _sandbox(recorded, spec, model, emit) as sandbox:
            with anyio.move_on_after(wall_clock_s if request is None else None) as scope:
                model.on_unknown = scope.cancel
                if request is None:
                    result = await _command(recorded, sandbox, emit, is_exact=is_exact)
                else:
                    result = await _conversation(recorded, request, sandbox, emit, is_exact=is_exact)
            if scope.cancelled_caught and model.unknown is None:
                result = _stopped(recorded, "timed_out", "the time limit of the run was reached")
    except LimitReached as exc:
        result = _stopped(recorded, "limit", str(exc))
    return replace(
        result,
        tolerated=(*result.tolerated, *model.tolerated),
        divergence=model.unknown or result.divergence or (None if result.ended else model.missing),
        exchanges=model.served,
    )


def _stopped(recorded: _Recorded, state: str, reason: str) -> ReplayResult:
    """What it comes to that the replay was stopped by a bound: how the record ends, or a divergence."""
    if recorded.ended is not None and recorded.ended.state == state:
        return ReplayResult(0, (), None, recorded.end)
    return ReplayResult(0, (), f"{reason}, and the record ends with {recorded.end}")


def _load(run: Path) -> _Recorded:
    events: list[Event] = [record.event for record in read(run)]
    created = next((event for event in events if isinstance(event, JobCreated)), None)
    before = next(
        (e.checkpoint for e in events if isinstance(e, CheckpointCreated) and e.when == "before"), None
    )
    if created is None or before is None:
        raise RecordError(f"run {run.name!r} has no beginning to replay from; see `ringfence audit show`")
    # A run that went on with an earlier one's clone found that one's files.
    work = load_record(run)
    return _Recorded(run, tuple(events), created, work.start or before, work.mode)


@asynccontextmanager
async def _sandbox(
    recorded: _Recorded, spec: SandboxSpec, model: ReplayedModel, emit: View
) -> AsyncIterator[Sandbox]:
    """A sandbox like the one of the run, with the recorded model at its gate and no other way out."""
    asked = model.spec_for(spec)
    bare = asked.model_copy(update={"setup": ()})
    async with (
        replica_of(recorded.run, recorded.start, state_dir()) as placement,
        Sandbox.open(bare, placement=_as_found(placement, recorded.mode)) as sandbox,
        model.door(sandbox, emit),
    ):
        async for _ in sandbox.set_up(asked.setup):
            pass
        yield sandbox


async def _conversation(
    recorded: _Recorded, request: AgentRequest, sandbox: Sandbox, emit: View, *, is_exact: bool
) -> ReplayResult:
    """Hold an agent's own loop again."""
    created = recorded.created
    conversation = conversation_of(resolve(created.continues)) if created.continues else ()
    model = RecordedModel(recorded.events, conversation=conversation, is_exact=is_exact)
    task = Task(
        prompt=created.prompt,
        model=_model_name(created),
        system=system_of(
            created.toolset,
            request.options.system_append,
            sandbox.spec,
            system_prompt=request.options.system_prompt,
        ),
        toolset=created.toolset,
        conversation=conversation,
    )
    divergence = ended = None
    async with open_toolset(
        created.toolset,
        sandbox=sandbox,
        functions=request.functions,
        mcp_servers=request.mcp_servers,
        allowed=request.options.tools_allowed,
        denied=request.options.tools_denied,
    ) as toolset:
        limits = _unlimited(request.limits)
        runtime = ApiRuntime(model=model, toolset=toolset, limits=limits, prices=request.prices)
        try:
            await runtime.run(task, sandbox, emit)
        except Diverged as exc:
            divergence = str(exc)
        except RecordOver:
            ended = recorded.end
    if divergence is None and model.remaining:
        divergence = f"the replay ended {model.remaining} requests earlier than the record"
    replies = sum(isinstance(event, ModelReplied) for event in recorded.events)
    return ReplayResult(replies - model.remaining, tuple(model.tolerated), divergence, ended)


async def _command(recorded: _Recorded, sandbox: Sandbox, emit: View, *, is_exact: bool) -> ReplayResult:
    """Execute the one command of a run again, and compare what it printed; its input is not in the record."""
    prompt = recorded.created.prompt
    if REPLACEMENT in prompt:
        raise RecordError(
            f"the command of run {recorded.run.name!r} has a secret in it, which is not in the record, so it "
            "cannot be executed again; give secrets by the environment"
        )
    argv = tuple(shlex.split(prompt))
    ended: list[CommandEnded] = []

    async def note(event: Event) -> None:
        if isinstance(event, CommandEnded):
            ended.append(event)
        await emit(event)

    with open_null() as null:
        await run_command(argv, Stdio(None, null, null), sandbox, note)
    before = [e for e in recorded.events if isinstance(e, CommandEnded) and tuple(e.argv) == argv]
    if not before:
        return ReplayResult(0, (), None, recorded.end)
    exact = _output_difference(before[-1], ended[-1], is_exact=True)
    real = exact if is_exact else _output_difference(before[-1], ended[-1], is_exact=False)
    return ReplayResult(0, (exact,) if exact and not real else (), real)


def _output_difference(before: CommandEnded, now: CommandEnded, *, is_exact: bool) -> str | None:
    shown = str if is_exact else masked
    for name in ("stdout", "stderr"):
        found = text_difference(getattr(before, name), getattr(now, name), shown)
        if found is not None:
            return f"the command's {name}: {found}"
    if (before.exit_code, before.ended_by) != (now.exit_code, now.ended_by):
        was, is_now = (f"code {one.exit_code} ({one.ended_by})" for one in (before, now))
        return f"the command ended with {was}, now with {is_now}"
    return None


def _as_found(placement: Placement, mode: str) -> Placement:
    """Give the copy the rights of the workspace itself, which a listing shows; a clone had those of the copy."""
    workspace, copy = placement.workspace, placement.workspace_source
    if mode != "clone" and workspace is not None and copy is not None:
        with suppress(OSError):  # the workspace may be gone; what a listing then shows is tolerated
            copy.chmod(workspace.stat().st_mode & 0o777)
    return placement


def _unlimited(limits: Limits) -> Limits:
    """Only what shapes the requests is kept: a replay costs nothing."""
    return limits.model_copy(update={"wall_clock_s": None, "cost_usd": None})


def _model_name(created: JobCreated) -> str:
    """What the requests named: a script's own name is not the file it was read from."""
    return "scripted" if created.model.startswith("scripted:") else created.model
