"""Reads schedules and their due times."""

from datetime import UTC, datetime, timedelta

from ringfence.fleet.daemon.scheduler import PlannedSchedule, planned
from ringfence.fleet.queries.models import ScheduleResponse
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.store.schedules import ScheduleState, ScheduleStates


async def list_schedules(source: FleetSource, agent: str | None = None) -> list[ScheduleResponse]:
    """The schedules of all agents, or of one; empty if the configuration is not known.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    if source.fleet is None:
        return []
    states = await ScheduleStates(source.database).all()
    due = {} if source.daemon is None else {each.key: at for each, at in source.daemon.scheduler.all()}
    now = datetime.now(UTC)
    return [
        _answer(each, states.get((each.agent.name, each.name)), due, now)
        for each in sorted(planned(source.fleet), key=lambda each: each.key)
        if agent in (None, each.agent.name)
    ]


def _answer(
    each: PlannedSchedule, state: ScheduleState | None, due: dict[str, datetime | None], now: datetime
) -> ScheduleResponse:
    is_paused = state is not None and state.is_paused
    if each.key in due:
        next_at = due[each.key]
    else:
        next_at = None if is_paused or not each.is_enabled else each.schedule.next_after(now)
    return ScheduleResponse(
        agent=each.agent.name,
        name=each.name,
        when=each.schedule.describe(),
        next_at=next_at,
        last_at=None if state is None else _due_time(each, state.last_due),
        is_paused=is_paused,
        is_enabled=each.is_enabled,
    )


def _due_time(each: PlannedSchedule, handled: datetime | None) -> datetime | None:
    """The last due time that was handled.

    None if it is not known: a schedule that is new, or was resumed, counts from that moment, which is no due time.
    """
    if handled is None or each.schedule.next_after(handled - timedelta(milliseconds=1)) != handled:
        return None
    return handled


def next_due(schedules: list[ScheduleResponse], count: int) -> list[ScheduleResponse]:
    """The schedules that are due next."""
    due = [each for each in schedules if each.next_at is not None]
    return sorted(due, key=lambda each: (each.next_at, each.agent, each.name))[:count]
