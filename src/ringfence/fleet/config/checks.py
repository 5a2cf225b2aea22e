"""Checks a fleet for mistakes between keys or between agents, which the model of a single key cannot find."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from ringfence.config.document import KeyPath
from ringfence.config.names import nearest
from ringfence.config.validation import combine
from ringfence.errors import RingfenceError, UsageError
from ringfence.fleet.config.definition import Agent
from ringfence.fleet.config.model import (
    AgentSettings,
    CommandHook,
    DirectoryTrigger,
    FleetSettings,
    GithubTrigger,
    ScheduleSettings,
    Trigger,
    WebhookTrigger,
)
from ringfence.fleet.prompt_template import PromptTemplate
from ringfence.fleet.schedule.base import EPOCH, Schedule
from ringfence.fleet.schedule.cron import CronSchedule
from ringfence.fleet.schedule.interval import IntervalSchedule
from ringfence.fleet.schedule.zone import zone
from ringfence.fleet.secret_placeholders import names_in
from ringfence.job.state import NO_CHECK, JobState
from ringfence.secret import VARIABLES

_PAYLOAD = ("payload",)
_PAYLOAD_REFERENCE = re.compile(r"(?<!\{)\{\{[ \t]*(payload\b[\w.-]{0,100})")

_Mistake = tuple[KeyPath, str]
"""The path of an agent's key, and a description of the mistake."""


def make_schedule(settings: ScheduleSettings, timezone: str | None) -> Schedule:
    """Return the schedule of the settings. Intervals are counted from 1970 on, so a restart changes no due time.

    Raises:
        UsageError: The expression or the time zone is not valid.
    """
    if settings.cron is not None:
        return CronSchedule(settings.cron, settings.timezone or timezone)
    assert settings.every is not None
    return IntervalSchedule(timedelta(seconds=settings.every), EPOCH)


def check_fleet(settings: FleetSettings, agents: Mapping[str, Agent]) -> None:
    """Check all agents of a fleet.

    Raises:
        ConfigurationError: The error has the position of the first mistake; its text names the others.
    """
    errors = [
        agent.error(path, message)
        for agent in agents.values()
        for path, message in chain(
            _check_agent(agent.settings),
            _check_triggers(agent.settings, settings, agents),
            _check_address(agent, settings),
            _check_inbox_secret(agent, settings, agents),
            _unused_keys(agent),
        )
    ]
    errors += _cycles(agents)
    if errors:
        raise combine(errors)


def _check_address(agent: Agent, fleet: FleetSettings) -> Iterator[_Mistake]:
    """Yield the webhook triggers whose address is that of the inbox."""
    if agent.name != "inbox" or fleet.inbox is None:
        return
    for name, trigger in agent.settings.triggers.items():
        if trigger.type == "webhook":
            line = "requests to /hooks/inbox answer questions (fleet.inbox); give the agent another name"
            yield ("triggers", name), line


def _check_inbox_secret(
    agent: Agent, fleet: FleetSettings, agents: Mapping[str, Agent]
) -> Iterator[_Mistake]:
    """Yield secrets of the key of the inbox that two agents read from different sources."""
    for name in names_in(fleet.inbox.secret) if fleet.inbox is not None else ():
        first = next((each for each in agents.values() if name in each.settings.secrets), None)
        if first is not None and agent.settings.secrets.get(name) not in (None, first.settings.secrets[name]):
            line = f"`fleet.inbox.secret` uses secret {name!r}, for which agent {first.name!r} has another source"
            yield ("secrets", name), f"{line}; give one of them another name"


def _check_agent(settings: AgentSettings) -> Iterator[_Mistake]:
    yield from _check_tasks(settings)
    yield from _check_schedules(settings)
    yield from _unknown_secrets(settings)
    run = settings.run
    if run.require_verified and run.verify in (None, NO_CHECK):
        yield (
            ("run", "require_verified"),
            "a check must pass, and there is none; name its command in `run.verify`",
        )
    if settings.concurrency > 1:
        if settings.repository is None and settings.sandbox.mode not in ("clone", "read_only"):
            shared = "its jobs share one workspace, where one works at a time"
            yield (
                ("concurrency",),
                f"{shared}; write `sandbox: {{mode: clone}}`, so that each has a private copy",
            )
        if settings.session.policy != "fresh":
            reason = "jobs that run at the same time cannot resume one session"
            yield ("session", "policy"), f"{reason}; write `policy: fresh`, or `concurrency: 1`"
    hooks = (hook for hooks in settings.hooks.values() for hook in hooks)
    if "host_hooks" not in settings.unsafe and any(
        isinstance(hook, CommandHook) and hook.where == "host" for hook in hooks
    ):
        yield ("hooks",), "a hook on the host has no sandbox; write `unsafe: [host_hooks]` beside it"


def _check_tasks(settings: AgentSettings) -> Iterator[_Mistake]:
    """Find schedules and triggers without a task. Items of a source have their own."""
    if settings.prompt is not None:
        return
    prompts: dict[KeyPath, str | None] = {
        ("schedules", name): each.prompt for name, each in settings.schedules.items()
    }
    prompts |= {
        ("triggers", name): each.prompt
        for name, each in settings.triggers.items()
        if not isinstance(each, DirectoryTrigger | GithubTrigger)
    }
    for path, prompt in prompts.items():
        if prompt is None:
            yield path, "it has no task; write `prompt:` here, or for the agent"


def _check_schedules(settings: AgentSettings) -> Iterator[_Mistake]:
    for name, schedule in settings.schedules.items():
        path: KeyPath = ("schedules", name)
        try:
            key = "timezone"
            zone(schedule.timezone or "UTC")
            key = "every" if schedule.cron is None else "cron"
            make_schedule(schedule, "UTC")
        except UsageError as exc:
            yield (*path, key), str(exc)
        reference = _PAYLOAD_REFERENCE.search(schedule.prompt or settings.prompt or "")
        if reference is not None:
            is_own = schedule.prompt is not None
            yield (
                (*path, "prompt") if is_own else path,
                (
                    f"{'the prompt' if is_own else 'the agent prompt'} contains {reference[1]!r}, which only triggers "
                    "provide; write a `prompt:` without it here"
                ),
            )


def _check_triggers(
    settings: AgentSettings, fleet: FleetSettings, agents: Mapping[str, Agent]
) -> Iterator[_Mistake]:
    for name, trigger in settings.triggers.items():
        path: KeyPath = ("triggers", name)
        yield from _check_prompt(settings, trigger, path)
        match trigger.type:
            case "after":
                yield from _check_after(path, trigger.agent, trigger.states, agents)
            case "webhook" if fleet.webhooks is None:
                yield path, "no address listens for it; write `fleet: {webhooks: {address: HOST:PORT}}`"
            case "files" if settings.workspace is None:
                yield path, "the files of a clone do not change; give the agent a workspace"
            case "files" if all(pattern.startswith("!") for pattern in trigger.paths):
                yield (*path, "paths"), "they only exclude files, so no change matches; name some files first"
            case "github" if trigger.label == trigger.claimed_label:
                reason = (
                    f"{trigger.label!r} is `label` as well, so no issue is ever claimed; name another label"
                )
                yield (*path, "claimed_label"), reason
            case _:
                pass


def _check_prompt(settings: AgentSettings, trigger: Trigger, path: KeyPath) -> Iterator[_Mistake]:
    prompt, source = trigger.prompt, (*path, "prompt")
    if prompt is None and not isinstance(trigger, DirectoryTrigger | GithubTrigger):
        prompt, source = settings.prompt, ("prompt",)
    try:
        PromptTemplate(prompt or "").check(_PAYLOAD)
    except (UsageError, ValueError) as exc:
        yield source, str(exc)


def _check_after(
    path: KeyPath, agent: str, states: tuple[str, ...], agents: Mapping[str, Agent]
) -> Iterator[_Mistake]:
    if agent not in agents:
        guess = nearest(agent, agents)
        hint = f"did you mean {guess!r}?" if guess else f"there are: {', '.join(agents)}"
        yield (*path, "agent"), f"there is no agent {agent!r}; {hint}"
    ends = [state.value for state in JobState if state.is_terminal]
    for state in states:
        if state not in ends:
            yield (*path, "states"), f"{state!r} is not an end of a job; write some of {', '.join(ends)}"


def _unknown_secrets(settings: AgentSettings) -> Iterator[_Mistake]:
    """Find references to secrets without a source, which would otherwise fail when a job needs them."""
    for path, text in _texts_with_secrets(settings):
        for name in names_in(text):
            if name not in settings.secrets and name not in VARIABLES:
                guess = nearest(name, settings.secrets)
                add = f"add it under `secrets:` as `{name}: env:VARIABLE`"
                yield path, f"secret {name!r} has no source; {f'did you mean {guess!r}?' if guess else add}"


def _texts_with_secrets(settings: AgentSettings) -> Iterator[tuple[KeyPath, str]]:
    for name, trigger in settings.triggers.items():
        if isinstance(trigger, WebhookTrigger):
            yield ("triggers", name, "secret"), trigger.secret
        elif isinstance(trigger, GithubTrigger):
            yield ("triggers", name, "token"), trigger.token
    for point, hooks in settings.hooks.items():
        for index, hook in enumerate(hooks):
            if not isinstance(hook, CommandHook):
                path: KeyPath = ("hooks", point, index)
                yield (*path, "url"), hook.url
                yield (*path, "secret"), hook.secret or ""
                yield from (((*path, "headers", header), value) for header, value in hook.headers.items())


def _unused_keys(agent: Agent) -> Iterator[_Mistake]:
    """Find keys that have no effect because of another key of the same file.

    Across files this is allowed: a file may set a key that makes a key of an included file ineffective.
    """
    for path, cause, message in _ineffective_keys(agent.settings):
        origin = agent.merged.origin(path)
        if origin.is_file and agent.merged.origin(cause).file in (None, origin.file):
            yield path, message


def _ineffective_keys(settings: AgentSettings) -> Iterator[tuple[KeyPath, KeyPath, str]]:
    """Yield the path of each ineffective key, the path of the key that makes it so, and what to do about it."""
    if settings.session.policy != "resume":
        reason = "it has no effect without `policy: resume`; write that, or remove this key"
        yield ("session", "within"), ("session", "policy"), reason
    yield from _ineffective_retry_keys(settings)
    for name, schedule in settings.schedules.items():
        if schedule.catch_up == "all" and schedule.overlap != "queue":
            path: KeyPath = ("schedules", name)
            reason = (
                "of due times that are caught up on at once all but one would be skipped or replaced; write `overlap: "
                "queue`, or `catch_up: once`"
            )
            yield (*path, "catch_up"), (*path, "overlap"), reason
    for point, hooks in settings.hooks.items():
        for index, hook in enumerate(hooks):
            if point != "before_run" and isinstance(hook, CommandHook) and hook.is_required:
                path = ("hooks", point, index, "required")
                reason = "it has no effect after the run; move the hook to `before_run`, or remove this key"
                yield path, path, reason


def _ineffective_retry_keys(settings: AgentSettings) -> Iterator[tuple[KeyPath, KeyPath, str]]:
    if settings.retry.attempts > 1 and settings.retry.on:
        return
    is_once = settings.retry.attempts == 1
    cause, condition = ("attempts", "with `attempts: 1`") if is_once else ("on", "while `on` is empty")
    for key in ("on" if is_once else "attempts", "backoff", "most_backoff"):
        yield ("retry", key), ("retry", cause), f"it has no effect {condition}; remove one of them"


def _cycles(agents: Mapping[str, Agent]) -> list[RingfenceError]:
    """Find agents whose jobs would trigger each other endlessly."""
    follows = {
        name: {trigger.agent for trigger in agent.settings.triggers.values() if trigger.type == "after"}
        for name, agent in agents.items()
    }
    try:
        TopologicalSorter(follows).prepare()
    except CycleError as exc:
        cycle: list[str] = exc.args[1]
        message = f"jobs would trigger each other without end: {' -> '.join(cycle)}"
        return [agents[cycle[0]].error(("triggers",), message)]
    return []
