"""Renders the state of a fleet as lines for people."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from ringfence.cli.output import counted


def status_lines(status: dict[str, Any], agents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the state of a fleet and of its agents, as the API describes them."""
    name = status["fleet"] or "fleet"
    where = status["file"] or "another machine"
    if status["pid"] is None:
        yield f"fleet {name} of {where}: {status['waits_for']}"
    else:
        yield f"fleet {name} ({where}), process {status['pid']}"
    is_attended = bool(status["machines"] or status["workers"])
    active = "running" if is_attended else "unfinished"
    yield f"jobs: {status['queued']} queued, {status['active']} {active}"
    unverified = f"{status['unverified_today']} unverified, " if status["unverified_today"] else ""
    ends = f"{status['succeeded_today']} succeeded, {unverified}{status['failed_today']} failed"
    yield f"today: {ends}; {spend_words(status['today'])}"
    if status["inbox"]:
        yield f"{counted(status['inbox'], 'question')} for you: `ringfence inbox ls` lists them"
    for machine in status["machines"]:
        draining = ", draining" if machine["is_draining"] else ""
        jobs = f"{machine['active']} of {counted(machine['capacity'], 'job')}"
        yield f"machine {machine['host']}: {counted(machine['workers'], 'worker')}, {jobs}{draining}"
    if status["waits_for"] and status["pid"] is not None and (status["queued"] or status["active"]):
        yield f"jobs wait: {status['waits_for']}"
    if status["unreadable"]:
        yield f"jobs that this version cannot read and does not run: {status['unreadable']}"
    for schedule in status["next_schedules"]:
        yield f"next: {schedule['agent']}/{schedule['name']} at {_clock(schedule['next_at'])}"
    for agent in agents:
        yield _agent_line(agent, active, has_reasons=status["pid"] is not None)


def spend_words(today: dict[str, Any]) -> str:
    """Return what was spent today, and the budget if there is one."""
    cost = f"${today['cost_usd']:.2f}"
    if today["max_cost_usd"] is not None:
        cost += f" of ${today['max_cost_usd']:.2f}"
    tokens = f"{today['tokens']:,}"
    if today["max_tokens"] is not None:
        tokens += f" of {today['max_tokens']:,}"
    return f"spent {cost}, {tokens} tokens"


def _agent_line(agent: dict[str, Any], active: str, *, has_reasons: bool) -> str:
    why = f"  waits: {agent['waits_for']}" if has_reasons and agent["waits_for"] and agent["queued"] else ""
    state = "" if agent["is_enabled"] else "  disabled"
    ended = "".join(f", {count} {name}" for name, count in agent["outcomes"].items())
    return f"  {agent['name']}: {agent['queued']} queued, {agent['active']} {active}{ended}{state}{why}"


def _clock(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"
