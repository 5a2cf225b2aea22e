"""Going on with an earlier run's conversation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.errors import RecordError, UsageError
from ringfence.events import Event, JobCreated
from ringfence.journal import is_alive, read, resolve, runs_dir
from ringfence.runtime.conversation import Conversation

_LOOK_BACK = 200
_CHAIN = 100
_NO_AGENT = frozenset({"exec", "shell", "imported"})


@dataclass(frozen=True)
class Continuation:
    """What a run goes on with; empty for one that starts anew."""

    run_id: str | None = None
    session_id: str | None = None
    conversation: tuple[dict[str, Any], ...] = ()


def last_run_of(workspace: Path) -> Continuation:
    """The newest agent's run on `workspace`, to go on with.

    Raises:
        UsageError: There is none, or it is still going on.
    """
    for path in _newest_first():
        created = creation_of(path)
        if created is not None and created.workspace == str(workspace) and created.runtime not in _NO_AGENT:
            if is_alive(path):
                raise UsageError(f"run {path.name!r} is still going on; wait for its end before --continue")
            return Continuation(path.name, created.session_id, conversation_of(path))
    raise UsageError(f"there is no run on {str(workspace)!r} to go on with; leave out --continue")


def creation_of(path: Path) -> JobCreated | None:
    """What the run in `path` was asked; None if its record does not say."""
    try:
        for number, record in enumerate(read(path)):
            if isinstance(record.event, JobCreated):
                return record.event
            if number > 2:
                break
    except RecordError:
        return None
    return None


def conversation_of(path: Path) -> tuple[dict[str, Any], ...]:
    """The messages of a run, those of the runs it went on with first.

    Raises:
        RecordError: A record of the chain is gone or damaged.
    """
    chain: list[list[Event]] = []
    for _ in range(_CHAIN):
        events = [record.event for record in read(path)]
        chain.append(events)
        earlier = next((event.continues for event in events if isinstance(event, JobCreated)), None)
        if earlier is None:
            break
        path = resolve(earlier)
    messages: tuple[dict[str, Any], ...] = ()
    for events in reversed(chain):
        messages = Conversation.from_events(events, messages=messages).messages
    return messages


def _newest_first() -> list[Path]:
    if not runs_dir().is_dir():
        return []
    return sorted((path for path in runs_dir().iterdir() if path.is_dir()), reverse=True)[:_LOOK_BACK]
