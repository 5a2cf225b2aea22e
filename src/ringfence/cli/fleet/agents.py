"""The commands `ringfence fleet agents` and `ringfence fleet schedules`."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.fleet.status import spend_words
from ringfence.cli.options import JsonOption, ServerOption
from ringfence.cli.output import notify, print_answer
from ringfence.errors import UsageError
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.fleet.client import FleetClient

_Agent = Annotated[str, typer.Argument(metavar="AGENT")]
_Schedule = Annotated[str, typer.Argument(metavar="AGENT/SCHEDULE")]


def list_agents(*, server: ServerOption = None, json: JsonOption = False) -> None:
    """List the fleet's agents."""
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.client import open_client

    found = open_client(server).get("agents")
    rows = [
        (
            agent["name"],
            "enabled" if agent["is_enabled"] else "disabled",
            agent["runtime"],
            agent["description"] or "",
        )
        for agent in found
    ]
    print_list({"agents": found}, ("agent", "state", "runtime", "description"), rows, json=json)


def show_agent(agent: _Agent, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Show one agent with its schedules and triggers."""
    from ringfence.fleet.client import open_client

    client = open_client(server)
    agents: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in client.get("agents")}
    found = agents.get(agent)
    if found is None:
        from ringfence.config.names import nearest

        guess = nearest(agent, agents)
        hint = f"did you mean {guess!r}?" if guess else "`ringfence fleet agents ls` lists them"
        raise UsageError(f"there is no agent {agent!r}; {hint}")
    schedules = [each for each in client.get("schedules") if each["agent"] == agent]
    lines = [
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in found.items()
        if value not in (None, "") and not isinstance(value, dict | list)
    ]
    lines.append(f"today: {spend_words(found['today'])}")
    if found["last_job"] is not None:
        lines.append(f"last job: {found['last_job']['id']}, {found['last_job']['state']}")
    lines += [f"schedule {each['name']}: {each['when']}, {_next(each)}" for each in schedules]
    lines += [f"trigger {each['name']}: {each['when']}" for each in found["triggers"]]
    print_answer({**found, "schedules": schedules}, lines, json=json)


def enable(agent: _Agent, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Enable an agent."""
    from ringfence.fleet.client import open_client

    client = open_client(server)
    client.post("agents", agent, "enable")
    is_enabled = any(each["is_enabled"] for each in client.get("agents") if each["name"] == agent)
    if not is_enabled:
        _report_configured(f"agent {agent!r} is still disabled")
    print_answer({"agent": agent, "is_enabled": is_enabled}, (), json=json)


def disable(agent: _Agent, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Disable an agent; running jobs continue."""
    from ringfence.fleet.client import open_client

    open_client(server).post("agents", agent, "disable")
    print_answer({"agent": agent, "is_enabled": False}, (), json=json)


def list_schedules(*, server: ServerOption = None, json: JsonOption = False) -> None:
    """List schedules and when each fires next."""
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.client import open_client

    found = open_client(server).get("schedules")
    rows = [(f"{each['agent']}/{each['name']}", each["next_at"] or "paused", each["when"]) for each in found]
    print_list({"schedules": found}, ("schedule", "next", "when"), rows, json=json)


def next_times(
    schedule: _Schedule,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="Number of times to print.")
    ] = 5,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Print when a schedule fires next, in UTC."""
    from ringfence.fleet.client import open_client

    agent, name = _parts(schedule)
    client = open_client(server)
    found = client.get("schedules", agent, name, "next", count=limit)
    if _is_paused(client, agent, name):
        notify(f"schedule {visible(schedule, one_line=True)!r} is paused; it would fire at these times")
    print_answer({"next": found}, found, json=json)


def run_now(schedule: _Schedule, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Start the job of a schedule now.

    When the schedule fires next does not change. A paused schedule runs, too.
    """
    from ringfence.fleet.client import open_client

    agent, name = _parts(schedule)
    created = open_client(server).post("schedules", agent, name, "run")
    print_answer(created, [created["job"]["id"]], json=json)


def pause(schedule: _Schedule, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Pause a schedule."""
    from ringfence.fleet.client import open_client

    agent, name = _parts(schedule)
    open_client(server).post("schedules", agent, name, "pause")
    print_answer({"agent": agent, "schedule": name, "is_paused": True}, (), json=json)


def resume(schedule: _Schedule, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Resume a schedule from now on.

    Times that passed while it was paused are skipped.
    """
    from ringfence.fleet.client import open_client

    agent, name = _parts(schedule)
    client = open_client(server)
    client.post("schedules", agent, name, "resume")
    is_paused = _is_paused(client, agent, name)
    if is_paused:
        _report_configured(f"schedule {schedule!r} is still paused")
    print_answer({"agent": agent, "schedule": name, "is_paused": is_paused}, (), json=json)


def _is_paused(client: "FleetClient", agent: str, name: str) -> bool:
    listed = client.get("schedules")
    return any((each["agent"], each["name"], each["next_at"]) == (agent, name, None) for each in listed)


def _report_configured(state: str) -> None:
    reason = "because its configuration says `enabled: false`"
    advice = "remove that, then run `ringfence config trust` and `ringfence fleet reload`"
    notify(f"{visible(state, one_line=True)}, {reason}; {advice}")


def _parts(schedule: str) -> tuple[str, str]:
    agent, slash, name = schedule.rpartition("/")
    if not slash or not agent or not name:
        raise UsageError(
            f"{schedule!r} is not of the form AGENT/SCHEDULE; `ringfence fleet schedules ls` lists them"
        )
    return agent, name


def _next(schedule: dict[str, Any]) -> str:
    return f"next {schedule['next_at']}" if schedule["next_at"] else "paused"


def report_former_agents(client: "FleetClient", known: set[str]) -> None:
    """Print the agents that are not configured any more and still have queued jobs."""
    waiting = [job for job in client.get("jobs", state="queued", limit=1000) if job["agent"] not in known]
    for name, count in Counter(job["agent"] for job in waiting).items():
        why = next(job["waits_for"] for job in waiting if job["agent"] == name)
        typer.echo(visible(f"  {name}: {count} queued  waits: {why}", one_line=True))
