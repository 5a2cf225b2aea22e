"""Reads the state of the fleet as a whole."""

import os

from sqlalchemy import Connection, func, select

from ringfence import __version__
from ringfence.fleet.queries.models import BudgetUsage, MachineSummary, StatusResponse
from ringfence.fleet.queries.schedules import list_schedules, next_due
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.queries.spend import fleet_budget
from ringfence.fleet.store.job import ACTIVE
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.store.tables import INBOX, JOBS
from ringfence.job.state import JobState

_NEXT_SCHEDULES = 3


async def read_status(source: FleetSource) -> StatusResponse:
    """The state of the fleet.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    counts, blockers = await source.counts(), await source.read_blockers()
    fleet, daemon = source.fleet, source.daemon
    file = source.file if daemon is None else daemon.file
    return StatusResponse(
        version=__version__,
        fleet=fleet.settings.name if fleet is not None else None,
        file=str(file) if file is not None else None,
        pid=os.getpid() if daemon is not None else None,
        started_at=daemon.started_at if daemon is not None else None,
        is_ready=daemon.is_ready if daemon is not None else False,
        workers=daemon.supervisor.pids if daemon is not None else [],
        machines=await list_machines(source),
        agents=len(fleet.agents if fleet is not None else counts.states),
        queued=counts.total(JobState.QUEUED),
        active=counts.total(*ACTIVE),
        unreadable=counts.unreadable,
        waits_for=blockers.fleet_reason,
        succeeded_today=counts.succeeded_today(),
        unverified_today=counts.unverified_today(),
        failed_today=counts.failed_today(),
        today=fleet_budget(source, sum(counts.spend.values(), Usage())),
        next_schedules=next_due(await list_schedules(source), _NEXT_SCHEDULES),
        inbox=await source.database.read(_count_open),
    )


def empty_status() -> StatusResponse:
    """The state of a machine without a fleet."""
    return StatusResponse(
        version=__version__,
        fleet=None,
        file=None,
        pid=None,
        started_at=None,
        is_ready=False,
        workers=[],
        machines=[],
        agents=0,
        queued=0,
        active=0,
        unreadable=0,
        waits_for=None,
        succeeded_today=0,
        unverified_today=0,
        failed_today=0,
        today=BudgetUsage(tokens=0, cost_usd=0.0, max_tokens=None, max_cost_usd=None),
        next_schedules=[],
        inbox=0,
    )


async def list_machines(source: FleetSource) -> list[MachineSummary]:
    """The machines with live workers, ordered by name.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    workers = (await source.live_workers()).known
    active = await source.database.read(_count_active)
    return [
        MachineSummary(
            host=host,
            workers=len(own),
            capacity=sum(worker.capacity for worker in own),
            active=active.get(host, 0),
            is_draining=all(worker.is_draining for worker in own),
        )
        for host in sorted({worker.host for worker in workers})
        if (own := [worker for worker in workers if worker.host == host])
    ]


def _count_active(connection: Connection) -> dict[str, int]:
    query = (
        select(JOBS.c.host, func.count()).where(JOBS.c.state == JobState.RUNNING.value).group_by(JOBS.c.host)
    )
    return {host: count for host, count in connection.execute(query) if host is not None}


def _count_open(connection: Connection) -> int:
    return connection.execute(select(func.count()).where(INBOX.c.answer.is_(None))).scalar_one()
