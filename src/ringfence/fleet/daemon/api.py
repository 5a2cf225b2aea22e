"""The daemon's interface: HTTP on a socket that only its owner can open. Described by OpenAPI at /openapi.json."""

import json
import os
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Literal

import anyio
from fastapi import Depends, FastAPI, Path, Query
from fastapi.responses import PlainTextResponse, StreamingResponse

from ringfence import __version__
from ringfence.errors import UsageError
from ringfence.fleet.config.model import (
    AfterTrigger,
    DirectoryTrigger,
    FilesTrigger,
    GithubTrigger,
    Trigger,
    WebhookTrigger,
)
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.daemon.error_responses import RESPONSES, guard, known_query
from ringfence.fleet.daemon.models import (
    AgentAnswer,
    DownAnswer,
    EnteredAnswer,
    ForgottenAnswer,
    JobAnswer,
    JobDetail,
    RepeatRequest,
    ScheduleAnswer,
    StatusAnswer,
    TriggerAnswer,
    TriggerRequest,
    counts_of_agent,
    job_answer,
    text_of,
)
from ringfence.fleet.daemon.monitoring import healthz, metrics_route, readiness_of
from ringfence.fleet.store.insertion import is_job_id
from ringfence.fleet.store.job import Job
from ringfence.fleet.submission import JobRequest, repeat_request
from ringfence.job.state import JobState
from ringfence.journal import as_json, follow, read, run_dir

_LOOK_S = 0.2
_MOST_LISTED = 1000
_Reference = Annotated[str, Path(min_length=1, max_length=100, description="A job's id, or the end of it.")]


def api(daemon: Daemon) -> FastAPI:
    """The application."""
    app = FastAPI(
        title="Ringfence fleet",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(known_query)],
        responses=RESPONSES,
        redirect_slashes=False,
    )
    guard(app)
    app.router.routes.append(metrics_route(daemon))
    _add_status(app, daemon)
    _add_agents(app, daemon)
    _add_jobs(app, daemon)
    _add_acts(app, daemon)
    _add_schedules(app, daemon)
    return app


def _add_status(app: FastAPI, daemon: Daemon) -> None:
    @app.get("/v1/status")
    async def status() -> StatusAnswer:
        """How the fleet stands."""
        counts = await daemon.jobs.counts()
        live = [count for by_state in counts.values() for count in by_state.items()]
        return StatusAnswer(
            version=__version__,
            fleet=daemon.fleet.settings.name,
            file=str(daemon.file),
            pid=os.getpid(),
            started_at=daemon.started_at,
            is_ready=daemon.is_ready,
            workers=daemon.supervisor.pids,
            agents=len(daemon.fleet.agents),
            queued=sum(count for state, count in live if state is JobState.QUEUED),
            active=sum(count for state, count in live if state in (JobState.STARTING, JobState.RUNNING)),
            unreadable=len(await daemon.jobs.unreadable()),
        )

    app.get("/healthz", response_class=PlainTextResponse)(healthz)
    app.get(
        "/readyz",
        response_class=PlainTextResponse,
        responses={503: {"content": {"text/plain": {}}, "description": "Not ready."}},
    )(readiness_of(daemon))

    @app.get("/v1/diff")
    async def diff() -> list[str]:
        """What a reload would change."""
        return await daemon.pending()

    @app.post("/v1/reload")
    async def reload() -> list[str]:
        """Read the files again; what changed."""
        return await daemon.reload()

    @app.post("/v1/forget")
    async def forget(*, dry_run: bool = False) -> ForgottenAnswer:
        """Forget ended jobs as `fleet.retention` says."""
        return ForgottenAnswer.model_validate(await daemon.forget(dry_run=dry_run), from_attributes=True)

    @app.post("/v1/down")
    async def down() -> DownAnswer:
        """Stop: what runs may end for `fleet.drain`; the second time at once."""
        daemon.stop()
        return DownAnswer(pid=os.getpid())


def _add_agents(app: FastAPI, daemon: Daemon) -> None:
    @app.get("/v1/agents")
    async def agents() -> list[AgentAnswer]:
        """All agents, and how they stand."""
        counts, states = await daemon.jobs.counts(), await daemon.agents.all()
        return [
            _agent(
                daemon, name, counts.get(name, {}), is_enabled=name not in states or states[name].is_enabled
            )
            for name in daemon.fleet.agents
        ]

    @app.post("/v1/agents/{name}/jobs", status_code=201)
    async def trigger(name: str, asked: TriggerRequest) -> EnteredAnswer:
        """Enter a job of an agent."""
        key = f"manual/{asked.key}" if asked.key else None
        entered = await daemon.submit(
            JobRequest(
                daemon.fleet.agent(name),
                "manual",
                prompt=asked.prompt,
                priority=asked.priority,
                dedupe_key=key,
            )
        )
        assert entered.job is not None
        return EnteredAnswer(job=_job(daemon, entered.job), is_new=entered.is_new)

    @app.post("/v1/agents/{name}/{act}")
    async def enable(name: str, act: Literal["enable", "disable"]) -> None:
        """Let an agent's jobs start, or have them wait."""
        await daemon.agents.enable(daemon.fleet.agent(name).name, is_enabled=act == "enable")
        daemon.dispatcher.wake()


def _agent(daemon: Daemon, name: str, counts: dict[JobState, int], *, is_enabled: bool) -> AgentAnswer:
    settings = daemon.fleet.agents[name].settings
    return AgentAnswer(
        name=name,
        description=settings.description,
        runtime=settings.run.runtime,
        model=settings.run.model,
        workspace=str(settings.workspace)
        if settings.workspace
        else settings.repository and settings.repository.url,
        is_enabled=settings.is_enabled and is_enabled,
        **counts_of_agent(counts),
        waits_for=_resting(daemon, name) or daemon.dispatcher.waiting.get(name),
        triggers=[
            TriggerAnswer(name=called, type=trigger.type, when=_when(f"{name}/{called}", trigger))
            for called, trigger in settings.triggers.items()
        ],
    )


def _when(path: str, trigger: Trigger) -> str:
    """When a trigger makes a job, for people."""
    match trigger:
        case WebhookTrigger():
            return f"a request to /hooks/{path}"
        case FilesTrigger():
            return f"a change of {', '.join(trigger.paths)}"
        case AfterTrigger():
            return f"a job of {trigger.agent} ends as {', '.join(trigger.states)}"
        case DirectoryTrigger():
            return f"a task file in {trigger.path}"
        case GithubTrigger():
            return f"an issue of {trigger.repository} with the label {trigger.label}"


def _job(daemon: Daemon, job: Job) -> JobAnswer:
    waiting = daemon.dispatcher.waiting
    why = (
        _resting(daemon, job.agent) or waiting.get(job.agent) or waiting.get(job.workspace) or waiting.get("")
    )
    return job_answer(job, why if job.state is JobState.QUEUED else None)


async def _check_known(daemon: Daemon, agent: str | None, found: Sequence[Job]) -> None:
    """See that there is an agent whose jobs were asked for, or that there was one: it may have jobs still.

    Raises:
        UsageError: There never was.
    """
    if agent is not None and not found and not await daemon.jobs.list(agent=agent, limit=1):
        daemon.fleet.agent(agent)


def _resting(daemon: Daemon, name: str) -> str | None:
    """Why nothing of an agent starts, by the configuration."""
    agent = daemon.fleet.agents.get(name)
    if agent is None:
        return "there is no such agent any more"
    return None if agent.settings.is_enabled else "the agent is disabled by its configuration"


def _add_jobs(app: FastAPI, daemon: Daemon) -> None:
    @app.get("/v1/jobs")
    async def jobs(
        agent: str | None = None,
        state: Annotated[list[JobState], Query()] = [],  # noqa: B006 -- never changed
        before: str | None = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 50,
    ) -> list[JobAnswer]:
        """Jobs, the newest first; older than `before`."""
        if before is not None and not is_job_id(before):  # the job of a whole id may be forgotten by now
            before = (await daemon.jobs.resolve(before)).id
        found = await daemon.jobs.list(agent=agent, states=state, before=before, limit=limit)
        await _check_known(daemon, agent, found)
        return [_job(daemon, job) for job in found]

    @app.get("/v1/jobs/{reference}")
    async def show(reference: _Reference) -> JobDetail:
        """One job, with its task and its answer."""
        job = await daemon.jobs.resolve(reference)
        return JobDetail(
            **_job(daemon, job).model_dump(),
            prompt=text_of(await daemon.jobs.blob(job.id, "prompt")),
            answer=text_of(await daemon.jobs.blob(job.id, "answer")),
        )

    @app.get(
        "/v1/jobs/{reference}/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"application/x-ndjson": {}}, "description": "A record on each line."}},
    )
    async def events(
        reference: _Reference, is_followed: Annotated[bool, Query(alias="follow")] = False
    ) -> StreamingResponse:
        """What is recorded of a job's last attempt on this machine, an event on each line; `follow`: until it ends."""
        job = await daemon.jobs.resolve(reference)
        return StreamingResponse(
            _events(daemon, job.id, is_followed=is_followed), media_type="application/x-ndjson"
        )


def _add_acts(app: FastAPI, daemon: Daemon) -> None:
    @app.post("/v1/jobs/{reference}/cancel")
    async def cancel(reference: _Reference) -> JobAnswer:
        """Cancel a job, wherever it is."""
        job = await daemon.jobs.resolve(reference)
        return _job(daemon, await daemon.cancel(job.id, reason="cancelled by hand"))

    @app.post("/v1/jobs/{reference}/{act}", status_code=201)
    async def repeat(
        reference: _Reference, act: Literal["retry", "fork"], asked: RepeatRequest
    ) -> EnteredAnswer:
        """Do a job again as a new one, or go on from where it ended."""
        job = await daemon.jobs.resolve(reference)
        if not job.state.is_terminal:
            raise UsageError(f"job {job.id!r} has not ended; cancel it first, or wait")
        if act == "fork":
            _check_session(daemon, job)
        kept = await daemon.jobs.blob(job.id, "prompt") or b""
        prompt = asked.prompt if asked.prompt is not None else kept.decode("utf-8", "surrogateescape")
        # A task given by hand is no template; the job's own may be one, which nothing can fill but what came with it.
        payload = await daemon.jobs.blob(job.id, "payload") if asked.prompt is None else None
        entered = await daemon.submit(
            repeat_request(job, daemon.fleet.agent(job.agent), prompt, kind=act, payload=payload)
        )
        assert entered.job is not None
        return EnteredAnswer(job=_job(daemon, entered.job), is_new=True)

    @app.delete("/v1/jobs/{reference}")
    async def remove(reference: _Reference) -> None:
        """Forget a job that has ended."""
        job = await daemon.jobs.resolve(reference)
        if not await daemon.jobs.remove(job.id):
            raise UsageError(f"job {job.id!r} has not ended; cancel it first")


def _check_session(daemon: Daemon, job: Job) -> None:
    """See that there is something of a job to go on with; on a fleet of several machines it may be on another one.

    Raises:
        UsageError: There is not.
    """
    if _has_record(job) or (job.run_id is not None and daemon.fleet.settings.engine.type != "sqlite"):
        return
    why = "its record is not here" if job.run_id is not None else "it never began"
    raise UsageError(
        f"job {job.id!r} left nothing to go on with ({job.state}; {why}); "
        f"`ringfence job retry {job.id}` does its task from the start, with `-p TEXT` another one"
    )


async def _events(daemon: Daemon, job_id: str, *, is_followed: bool) -> AsyncIterator[bytes]:
    """What is recorded of a job's last attempt on this machine, a line for each event."""
    job = await daemon.jobs.get(job_id)
    while is_followed and job is not None and not job.state.is_terminal and not _has_record(job):
        await anyio.sleep(_LOOK_S)
        job = await daemon.jobs.get(job_id)
    if job is None or job.run_id is None or not _has_record(job):
        return
    records = follow(run_dir(job.run_id)) if is_followed else None
    if records is None:
        for record in read(run_dir(job.run_id)):
            yield json.dumps(as_json(record)).encode() + b"\n"
        return
    async for record in records:
        yield json.dumps(as_json(record)).encode() + b"\n"


def _has_record(job: Job) -> bool:
    return job.run_id is not None and run_dir(job.run_id).is_dir()


def _add_schedules(app: FastAPI, daemon: Daemon) -> None:
    @app.get("/v1/schedules")
    async def schedules() -> list[ScheduleAnswer]:
        """All schedules, and when each fires next."""
        return [
            ScheduleAnswer(
                agent=each.agent.name, name=each.name, when=each.schedule.describe(), next_at=next_at
            )
            for each, next_at in daemon.scheduling.all()
        ]

    @app.get("/v1/schedules/{agent}/{name}/next")
    async def next_times(
        agent: str, name: str, count: Annotated[int, Query(ge=1, le=1000)] = 5
    ) -> list[datetime]:
        """When a schedule fires next."""
        return daemon.scheduling.next_times(f"{agent}/{name}", count)

    @app.post("/v1/schedules/{agent}/{name}/{act}")
    async def pause(agent: str, name: str, act: Literal["pause", "resume"]) -> None:
        """Have a schedule rest, or go on from now."""
        if not await daemon.scheduling.pause(f"{agent}/{name}", is_paused=act == "pause"):
            raise UsageError(
                f"agent {agent!r} has no schedule {name!r}; `ringfence fleet schedules ls` lists them"
            )
