"""What is wrong between keys, or between agents, that no model of one of them can see; each told at its place."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from graphlib import CycleError, TopologicalSorter

from ringfence.config.names import nearest
from ringfence.config.validation import combine
from ringfence.errors import RingfenceError, UsageError
from ringfence.fleet.config.definition import Agent
from ringfence.fleet.config.missing_secrets import unnamed_secrets
from ringfence.fleet.config.model import (
    DirectoryTrigger,
    FleetSettings,
    GithubTrigger,
    ScheduleSettings,
    Trigger,
)
from ringfence.fleet.config.unused_keys import idle_keys
from ringfence.fleet.prompt_template import PromptTemplate
from ringfence.fleet.schedule.base import EPOCH, Schedule
from ringfence.fleet.schedule.cron import CronSchedule
from ringfence.fleet.schedule.interval import IntervalSchedule
from ringfence.fleet.schedule.zone import zone
from ringfence.job.state import NO_CHECK, JobState

_PAYLOAD = ("payload",)
_OF_TRIGGERS = re.compile(r"(?<!\{)\{\{[ \t]*(payload\b[\w.-]{0,100})")


def schedule_of(settings: ScheduleSettings, timezone: str | None) -> Schedule:
    """When a schedule fires. Intervals are counted from 1970 on, so that a restart changes nothing.

    Raises:
        UsageError: The expression or the zone makes no sense.
    """
    if settings.cron is not None:
        return CronSchedule(settings.cron, settings.timezone or timezone)
    assert settings.every is not None
    return IntervalSchedule(timedelta(seconds=settings.every), EPOCH)


def check_fleet(settings: FleetSettings, agents: Mapping[str, Agent]) -> None:
    """See that a fleet makes sense as a whole.

    Raises:
        ConfigurationError: At the place of the first complaint; the others follow in the text.
    """
    complaints = [complaint for agent in agents.values() for complaint in _of(agent, settings, agents)]
    complaints += _cycles(agents)
    if complaints:
        raise combine(complaints)


def _of(agent: Agent, fleet: FleetSettings, agents: Mapping[str, Agent]) -> Iterator[RingfenceError]:
    yield from _without_task(agent)
    yield from _without_check(agent)
    yield from _schedules(agent)
    yield from unnamed_secrets(agent)
    yield from idle_keys(agent)
    for name, trigger in agent.settings.triggers.items():
        yield from _trigger(agent, f"triggers.{name}", trigger, fleet, agents)
    yield from _side_by_side(agent)
    if _has_host_hooks(agent) and "host_hooks" not in agent.settings.unsafe:
        yield _wrong(
            agent, "hooks", "a hook on the host is outside of any fence; say `unsafe: [host_hooks]` beside it"
        )


def _trigger(
    agent: Agent, key: str, trigger: Trigger, fleet: FleetSettings, agents: Mapping[str, Agent]
) -> Iterator[RingfenceError]:
    if trigger.prompt is not None:
        yield from _worker_settings(agent, f"{key}.prompt", partial(_check_prompt, trigger.prompt))
    elif agent.settings.prompt is not None and not isinstance(trigger, DirectoryTrigger | GithubTrigger):
        yield from _worker_settings(agent, "prompt", partial(_check_prompt, agent.settings.prompt))
    if trigger.type == "after":
        yield from _after(agent, key, trigger.agent, trigger.states, agents)
    if trigger.type == "webhook" and fleet.webhooks is None:
        yield _wrong(
            agent,
            key,
            "nobody listens for it; write `fleet: {webhooks: {address: HOST:PORT}}`",
        )
    if trigger.type == "files" and agent.settings.workspace is None:
        yield _wrong(agent, key, "nobody changes files of a clone; give the agent a workspace")
    if trigger.type == "files" and all(path.startswith("!") for path in trigger.paths):
        yield _wrong(agent, f"{key}.paths", "they only leave files out, so no change counts; name some first")
    if trigger.type == "github" and trigger.label == trigger.claimed_label:
        line = f"{trigger.label!r} is `label`, too, and issues that have it are taken by nobody; name another"
        yield _wrong(agent, f"{key}.claimed_label", line)


def _side_by_side(agent: Agent) -> Iterator[RingfenceError]:
    """Jobs at once of an agent that can only have one at a time."""
    if agent.settings.concurrency == 1:
        return
    if _is_shared(agent):
        yield _wrong(
            agent,
            "concurrency",
            "its jobs share one workspace, where one works at a time; let each have a copy by `sandbox: {mode: clone}`",
        )
    if agent.settings.session.policy != "fresh":
        yield _wrong(
            agent,
            "session.policy",
            "jobs side by side cannot go on with one conversation; write `policy: fresh`, or `concurrency: 1`",
        )


def _schedules(agent: Agent) -> Iterator[RingfenceError]:
    for name, schedule in agent.settings.schedules.items():
        wrong = list(
            _worker_settings(agent, f"schedules.{name}.timezone", partial(zone, schedule.timezone or "UTC"))
        )
        if not wrong:
            key = "every" if schedule.cron is None else "cron"
            wrong = list(
                _worker_settings(agent, f"schedules.{name}.{key}", partial(schedule_of, schedule, "UTC"))
            )
        yield from wrong
        asked = _OF_TRIGGERS.search(schedule.prompt or agent.settings.prompt or "")
        if asked is not None:
            key = f"schedules.{name}" + (".prompt" if schedule.prompt is not None else "")
            whose = "the prompt" if schedule.prompt is not None else "the agent's prompt"
            yield _wrong(
                agent,
                key,
                f"{whose} asks for {asked[1]!r}, which only triggers bring along; write a `prompt:` without it here",
            )


def _without_check(agent: Agent) -> Iterator[RingfenceError]:
    """A check that is required and is not there: each of its jobs would be refused."""
    run = agent.settings.run
    if run.require_verified and run.verify in (None, NO_CHECK):
        yield _wrong(
            agent,
            "run.require_verified",
            "a check must pass, and there is none; name its command in `run.verify`",
        )


def _without_task(agent: Agent) -> Iterator[RingfenceError]:
    """Schedules and triggers that would make jobs of nothing."""
    if agent.settings.prompt is not None:
        return
    where = [(f"schedules.{name}", each.prompt) for name, each in agent.settings.schedules.items()]
    where += [
        (f"triggers.{name}", each.prompt)
        for name, each in agent.settings.triggers.items()
        if not isinstance(each, DirectoryTrigger | GithubTrigger)  # work brings its task along
    ]
    for key, prompt in where:
        if prompt is None:
            yield _wrong(agent, key, "it has no task; write `prompt:` here, or for the agent")


def _has_host_hooks(agent: Agent) -> bool:
    hooks = (hook for hooks in agent.settings.hooks.values() for hook in hooks)
    return any(hook.type == "command" and hook.where == "host" for hook in hooks)


def _after(
    agent: Agent, key: str, other: str, states: tuple[str, ...], agents: Mapping[str, Agent]
) -> Iterator[RingfenceError]:
    if other not in agents:
        guess = nearest(other, agents)
        hint = f"did you mean {guess!r}?" if guess else f"there are: {', '.join(agents)}"
        yield _wrong(agent, f"{key}.agent", f"there is no agent {other!r}; {hint}")
    ends = [state.value for state in JobState if state.is_terminal]
    for state in states:
        if state not in ends:
            yield _wrong(agent, f"{key}.states", f"{state!r} is no end of a job; those are {', '.join(ends)}")


def _cycles(agents: Mapping[str, Agent]) -> list[RingfenceError]:
    """Agents whose jobs would follow each other without end."""
    follows = {
        name: {trigger.agent for trigger in agent.settings.triggers.values() if trigger.type == "after"}
        for name, agent in agents.items()
    }
    try:
        TopologicalSorter(follows).prepare()
    except CycleError as exc:
        circle: list[str] = exc.args[1]
        wrong = f"jobs would follow each other without end: {' -> '.join(circle)}"
        return [_wrong(agents[circle[0]], "triggers", wrong)]
    return []


def _check_prompt(text: str) -> None:
    PromptTemplate(text).check(_PAYLOAD)


def _is_shared(agent: Agent) -> bool:
    return agent.settings.repository is None and agent.settings.sandbox.mode not in ("clone", "read_only")


def _worker_settings(agent: Agent, key: str, act: Callable[[], object]) -> Iterator[RingfenceError]:
    try:
        act()
    except (UsageError, ValueError) as exc:
        yield _wrong(agent, key, str(exc))


def _wrong(agent: Agent, key: str, message: str) -> RingfenceError:
    return agent.merged.blame(key.split(".")).error(f"agents.{agent.name}.{key}: {message}")
