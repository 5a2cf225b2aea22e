"""Keys that stand in a file for nothing, since what stands beside them leaves them no effect."""

from collections.abc import Iterator

from ringfence.config.document import KeyPath
from ringfence.errors import RingfenceError
from ringfence.fleet.config.definition import Agent
from ringfence.fleet.config.model import AgentSettings


def idle_keys(agent: Agent) -> Iterator[RingfenceError]:
    """What an agent is told to no effect, each at its place.

    A file that includes another may well put a key of that one out of effect: only what one file says counts.
    """
    for path, cause, message in _idle(agent.settings):
        origin = agent.merged.origin(path)
        if origin.is_file and agent.merged.origin(cause).file in (None, origin.file):
            yield origin.error(f"agents.{agent.name}.{'.'.join(map(str, path))}: {message}")


_Idle = Iterator[tuple[KeyPath, KeyPath, str]]
"""A key, the one that leaves it no effect, and what to do."""


def _idle(settings: AgentSettings) -> _Idle:
    if settings.session.policy != "resume":
        why = "it has no effect without `policy: resume`; write that, or drop it"
        yield ("session", "within"), ("session", "policy"), why
    yield from _idle_of_retries(settings)
    for name, schedule in settings.schedules.items():
        if schedule.catch_up == "all" and schedule.overlap != "queue":
            why = "of slots that are made up for at once all but one would be left out or replaced"
            at: KeyPath = ("schedules", name)
            yield (*at, "catch_up"), (*at, "overlap"), f"{why}; write `overlap: queue`, or `catch_up: once`"
    for moment, hooks in settings.hooks.items():
        for index, hook in enumerate(hooks):
            if moment != "before_run" and hook.type == "command" and hook.is_required:
                path: KeyPath = ("hooks", moment, index, "required")
                yield (
                    path,
                    path,
                    "it has no effect after the run; write the hook under `before_run`, or drop it",
                )


def _idle_of_retries(settings: AgentSettings) -> _Idle:
    retry = settings.retry
    if retry.attempts == 1:
        for key in ("on", "backoff", "most_backoff"):
            yield (
                ("retry", key),
                ("retry", "attempts"),
                "it has no effect with `attempts: 1`; drop one of them",
            )
    elif not retry.on:
        for key in ("attempts", "backoff", "most_backoff"):
            yield ("retry", key), ("retry", "on"), "it has no effect while `on` is empty; drop one of them"
