"""`ringfence agent` and `ringfence schedule`: the crew's members, and when they work by themselves."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, command_group
from ringfence.cli.printing import print_answer
from ringfence.cli.saying import say
from ringfence.errors import UsageError
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.fleet.client import FleetClient

agent_app = command_group("agent", "The crew's agents.")
schedule_app = command_group("schedule", "When the crew's agents work by themselves.")
_Agent = Annotated[str, typer.Argument(metavar="AGENT")]
_Schedule = Annotated[str, typer.Argument(metavar="AGENT/SCHEDULE")]


@agent_app.command("ls")
def list_agents(*, json: JsonOption = False) -> None:
    """List agents, and how they stand."""
    from ringfence.fleet.client import FleetClient

    found = FleetClient().get("agents")
    print_answer({"agents": found}, map(_agent_line, found), json=json)


def _agent_line(agent: dict[str, Any]) -> str:
    state = "enabled" if agent["is_enabled"] else "disabled"
    return f"{agent['name']:<24} {state:<9} {agent['runtime']:<11} {agent['description'] or ''}".rstrip()


@agent_app.command("show")
def show_agent(agent: _Agent, *, json: JsonOption = False) -> None:
    """Show one agent."""
    from ringfence.fleet.client import FleetClient

    client = FleetClient()
    agents: dict[str, dict[str, Any]] = {each["name"]: each for each in client.get("agents")}
    found = agents.get(agent)
    if found is None:
        from ringfence.config.fields import nearest

        guess = nearest(agent, agents)
        hint = f"did you mean {guess!r}?" if guess else "`ringfence agent ls` lists them"
        raise UsageError(f"there is no agent {agent!r}; {hint}")
    schedules = [each for each in client.get("schedules") if each["agent"] == agent]
    lines = [
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in found.items()
        if value not in (None, "") and key != "triggers"
    ]
    lines += [f"schedule {each['name']}: {each['when']}, {_next(each)}" for each in schedules]
    lines += [f"trigger {each['name']}: {each['when']}" for each in found["triggers"]]
    print_answer({**found, "schedules": schedules}, lines, json=json)


@agent_app.command("enable")
def enable(agent: _Agent, *, json: JsonOption = False) -> None:
    """Let an agent's jobs start."""
    from ringfence.fleet.client import FleetClient

    client = FleetClient()
    client.post("agents", agent, "enable")
    is_enabled = any(each["is_enabled"] for each in client.get("agents") if each["name"] == agent)
    if not is_enabled:
        _tell_configured(f"agent {agent!r} is disabled")
    print_answer({"agent": agent, "is_enabled": is_enabled}, (), json=json)


@agent_app.command("disable")
def disable(agent: _Agent, *, json: JsonOption = False) -> None:
    """Have an agent's jobs wait. One that runs goes on."""
    from ringfence.fleet.client import FleetClient

    FleetClient().post("agents", agent, "disable")
    print_answer({"agent": agent, "is_enabled": False}, (), json=json)


@schedule_app.command("ls")
def list_schedules(*, json: JsonOption = False) -> None:
    """List schedules, and when each fires next."""
    from ringfence.fleet.client import FleetClient

    found = FleetClient().get("schedules")
    lines = (
        f"{each['agent'] + '/' + each['name']:<32} {each['next_at'] or 'paused':<28} {each['when']}"
        for each in found
    )
    print_answer({"schedules": found}, lines, json=json)


@schedule_app.command("next")
def next_times(
    schedule: _Schedule,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many.")] = 5,
    json: JsonOption = False,
) -> None:
    """Print when a schedule fires next, in UTC."""
    from ringfence.fleet.client import FleetClient

    agent, name = _parts(schedule)
    client = FleetClient()
    found = client.get("schedules", agent, name, "next", count=count)
    if _is_paused(client, agent, name):
        say("it is paused; these would be its times")
    print_answer({"next": found}, found, json=json)


@schedule_app.command("pause")
def pause(schedule: _Schedule, *, json: JsonOption = False) -> None:
    """Have a schedule rest."""
    from ringfence.fleet.client import FleetClient

    agent, name = _parts(schedule)
    FleetClient().post("schedules", agent, name, "pause")
    print_answer({"agent": agent, "schedule": name, "is_paused": True}, (), json=json)


@schedule_app.command("resume")
def resume(schedule: _Schedule, *, json: JsonOption = False) -> None:
    """Have a schedule go on from now. What it missed meanwhile is past."""
    from ringfence.fleet.client import FleetClient

    agent, name = _parts(schedule)
    client = FleetClient()
    client.post("schedules", agent, name, "resume")
    is_paused = _is_paused(client, agent, name)
    if is_paused:
        _tell_configured(f"schedule {schedule!r} rests")
    print_answer({"agent": agent, "schedule": name, "is_paused": is_paused}, (), json=json)


def _is_paused(client: "FleetClient", agent: str, name: str) -> bool:
    listed = client.get("schedules")
    return any((each["agent"], each["name"], each["next_at"]) == (agent, name, None) for each in listed)


def _tell_configured(stands: str) -> None:
    advice = "take `enabled: false` out of it, then `ringfence trust` and `ringfence fleet reload`"
    say(f"{visible(stands, one_line=True)} by its configuration; {advice}")


def _parts(schedule: str) -> tuple[str, str]:
    agent, slash, name = schedule.rpartition("/")
    if not slash or not agent or not name:
        raise UsageError(f"{schedule!r} is no AGENT/SCHEDULE; `ringfence schedule ls` lists them")
    return agent, name


def _next(schedule: dict[str, Any]) -> str:
    return f"next {schedule['next_at']}" if schedule["next_at"] else "paused"


def tell_former(client: "FleetClient", known: set[str]) -> None:
    """Name agents that are not configured any more, of which jobs wait."""
    waiting = [job for job in client.get("jobs", state="queued", limit=1000) if job["agent"] not in known]
    for name, count in Counter(job["agent"] for job in waiting).items():
        why = next(job["waits_for"] for job in waiting if job["agent"] == name)
        typer.echo(visible(f"  {name}: {count} queued  waits: {why}", one_line=True))
