"""A recorded run held again: recorded model, fresh sandbox from the same checkpoint, every tool executed again."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ringfence.config.paths import state_dir
from ringfence.errors import Diverged, RecordError
from ringfence.events import CheckpointCreated, Event, JobCreated, JobEnded, ModelReplied
from ringfence.job.agent import system_of
from ringfence.job.continuing import conversation_of
from ringfence.job.recorder import View
from ringfence.job.request import AgentRequest
from ringfence.journal import read, resolve
from ringfence.runtime.api import ApiRuntime
from ringfence.runtime.base import Task
from ringfence.runtime.limits import Limits
from ringfence.runtime.recorded import RecordedModel, RecordOver
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.workspace.replica import replica_of
from ringfence.sandbox.workspace.work import load_record
from ringfence.tool.toolset import open_toolset


@dataclass(frozen=True)
class ReplayResult:
    """What a replay came to."""

    turns: int
    """Replies served from the record."""
    tolerated: tuple[str, ...]
    """Differences that were passed over: durations, times, addresses, temporary names."""
    divergence: str | None
    """The first difference, with its turn; None if there was none."""
    ended: str | None = None
    """How the record ends, where it ends before the agent did; the replay is held as far as that."""


async def replay_run(
    run: Path, spec: SandboxSpec, request: AgentRequest, *, is_exact: bool = False, view: View | None = None
) -> ReplayResult:
    """Hold the run in `run` again.

    Args:
        run: Its directory.
        spec: The sandbox it had.
        request: Its toolset and tools; the model in it is not asked.
        is_exact: Count also differences in durations, times and the like.
        view: Is shown the events.

    Raises:
        RecordError: The record is damaged, or its checkpoint is gone.
    """
    events: list[Event] = [record.event for record in read(run)]
    created = next((event for event in events if isinstance(event, JobCreated)), None)
    before = next(
        (e.checkpoint for e in events if isinstance(e, CheckpointCreated) and e.when == "before"), None
    )
    if created is None or before is None:
        raise RecordError(f"run {run.name!r} has no beginning to replay from; see `ringfence audit show`")
    # A run that went on with an earlier one's clone found that one's files.
    work = load_record(run)
    start = work.start or before
    conversation = conversation_of(resolve(created.continues)) if created.continues else ()
    model = RecordedModel(events, conversation=conversation, is_exact=is_exact)

    async def emit(event: Event) -> None:
        if view is not None:
            await view(event)

    task = Task(
        prompt=created.prompt,
        model=_model_name(created),
        system=system_of(created.toolset, request.system_append, spec),
        toolset=created.toolset,
        conversation=conversation,
    )
    divergence = ended = None
    async with (
        replica_of(run, start, state_dir()) as placement,
        Sandbox.open(spec, placement=_as_found(placement, work.mode)) as sandbox,
        open_toolset(
            created.toolset, sandbox=sandbox, functions=request.functions, mcp_servers=request.mcp_servers
        ) as toolset,
    ):
        runtime = ApiRuntime(
            model=model,
            toolset=toolset,
            limits=_unlimited(request.limits),
            prices=request.prices,
        )
        try:
            await runtime.run(task, sandbox, emit)
        except Diverged as exc:
            divergence = str(exc)
        except RecordOver:
            ended = _end_of(events)
    if divergence is None and model.remaining:
        divergence = f"the replay ended {model.remaining} requests earlier than the record"
    replies = sum(isinstance(event, ModelReplied) for event in events)
    return ReplayResult(replies - model.remaining, tuple(model.tolerated), divergence, ended)


def _end_of(events: Sequence[Event]) -> str:
    end = next((event for event in events if isinstance(event, JobEnded)), None)
    return "the run was interrupted" if end is None else f"{end.state}: {end.reason}"


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
