"""Going on with an earlier run's conversation."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ringfence.config.paths import state_dir
from ringfence.errors import UsageError
from ringfence.events import Event, JobCreated
from ringfence.frozen import frozen
from ringfence.journal import creation_of, fitting, is_alive, read, resolve, run_dirs
from ringfence.runtime.conversation import Conversation
from ringfence.runtime.session.home import SessionHome, sessions_dir

_LOOK_BACK = 200
_CHAIN = 100
_TOLD = 20
_SHOWN = 60
_NOT_TOLD = ("run.model", "run.runtime")
"""Told as `model`; the session's own, whatever the settings say."""
_NO_AGENT = frozenset({"", "exec", "shell", "standing", "claude", "codex", "imported"})
"""Runtimes of runs that cannot be gone on with; an agent of one's own has no name."""


@frozen
class Continuation:
    """What a run goes on with; empty for one that starts anew."""

    run_id: str | None = None
    session_id: str | None = None
    conversation: tuple[dict[str, Any], ...] = ()
    created: JobCreated | None = None
    """How that run was asked for."""
    is_forked: bool = False
    """Whether what follows is a session of its own."""


def last_run_of(workspace: Path) -> Continuation:
    """The newest agent's run on `workspace`, to go on with. A client's that kept nothing of its session is passed over.

    Raises:
        UsageError: There is none, or it is still going on.
        RecordError: What says whose a session is cannot be read.
    """
    empty: tuple[Path, JobCreated] | None = None
    for path in run_dirs()[:_LOOK_BACK]:
        created = creation_of(path)
        if created is None or created.workspace != str(workspace) or created.runtime in _NO_AGENT:
            continue
        if is_alive(path) or _is_kept(created):
            return _from(path, created)
        empty = empty or (path, created)
    if empty is not None:
        return _from(*empty)
    raise UsageError(f"there is no run on {str(workspace)!r} to go on with; leave out --continue")


def run_of(reference: str) -> Continuation:
    """The run that is meant, to go on with.

    Args:
        reference: As `ringfence audit ls` lists it, or the beginning of that; or a session's id, or the beginning
            of one: its newest run.

    Raises:
        UsageError: None is meant, or several are, or it is still going on, or it was no agent's.
    """
    if not fitting(reference):
        newest = _newest_of(reference)
        if newest is None:
            raise _unknown(reference)
        return _from(*newest)
    path = resolve(reference)
    created = creation_of(path)
    if created is None or created.runtime in _NO_AGENT:
        runtime = created.runtime if created is not None else ""
        is_terminal = runtime in ("claude", "codex")
        step = f"its sessions go on by `ringfence {runtime}`" if is_terminal else "name another"
        raise UsageError(f"run {path.name!r} was no agent's, so there is nothing to go on with; {step}")
    if created.runtime != "api":  # its session has one state, that of its newest run
        path, created = _newest_of(created.session_id) or (path, created)
    return _from(path, created)


def _unknown(reference: str) -> UsageError:
    """What to say of something that is neither a run nor the session of one."""
    from ringfence.job.interactive import terminal_session

    found = terminal_session(reference, state_dir())
    if found is None:
        return UsageError(
            f"there is no unattended session {reference!r}, and there is no run {reference!r}; "
            "`ringfence audit ls` lists the runs"
        )
    client, session = found
    step = f"`ringfence {client} {'--resume' if client == 'claude' else 'resume'} {session}`"
    return UsageError(
        f"session {session!r} is one on a terminal; go on with it there, on its workspace, by {step}"
    )


def _newest_of(session: str) -> tuple[Path, JobCreated] | None:
    """The newest run of the session whose id begins so.

    Raises:
        UsageError: Several do.
    """
    newest: dict[str, tuple[Path, JobCreated]] = {}
    for path in run_dirs()[:_LOOK_BACK]:
        created = creation_of(path)
        if created is None or created.runtime in _NO_AGENT:
            continue
        if created.session_id == session:
            return path, created
        if session and created.session_id.startswith(session):
            newest.setdefault(created.session_id, (path, created))
    if len(newest) > 1:
        names = ", ".join([*newest][:3])
        raise UsageError(f"{session!r} fits {len(newest)} sessions ({names}, ...); give more of its id")
    return next(iter(newest.values()), None)


def _is_kept(created: JobCreated) -> bool:
    """Whether there is something of its session to go on with; that of our own loop is in the record."""
    if created.runtime == "api":
        return True
    home = SessionHome(sessions_dir(state_dir()) / created.session_id)
    return home.record() is not None and bool(home.files())


def check_context(earlier: JobCreated, *, workspace: Path, runtime: str) -> None:
    """See that a session is gone on with where and by whom it was begun.

    Raises:
        UsageError: The workspace is another one, or the runtime is.
    """
    if earlier.workspace != str(workspace):
        raise UsageError(
            f"session {earlier.session_id!r} is of the workspace {earlier.workspace!r}, not of {str(workspace)!r};"
            f" name that one by --workspace"
        )
    if earlier.runtime != runtime:
        raise UsageError(
            f"session {earlier.session_id!r} was begun by the runtime {earlier.runtime!r}, which alone knows it, not by"
            f" {runtime!r}; give --runtime {earlier.runtime}"
        )


def differences(earlier: JobCreated, *, model: str, configuration: Mapping[str, Any]) -> list[str]:
    """What is not as it was in an earlier run: `limits.turns: was 60, is 5`. At most 20, each short."""
    before, now = dict(_leaves(earlier.configuration)), dict(_leaves(configuration))
    before["model"], now["model"] = earlier.model, model
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    told = [
        f"{name}: was {_short(before.get(name))}, is {_short(now.get(name))}"
        for name in names
        if name not in _NOT_TOLD
    ]
    return [*told[:_TOLD], *([f"and {len(told) - _TOLD} more"] if len(told) > _TOLD else [])]


def _leaves(configuration: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in configuration.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _short(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _from(path: Path, created: JobCreated) -> Continuation:
    if is_alive(path):
        raise UsageError(f"run {path.name!r} is still going on; wait for its end before going on with it")
    # A client remembers by itself; earlier runs of its session may be gone.
    conversation = conversation_of(path) if created.runtime == "api" else ()
    return Continuation(path.name, created.session_id, conversation, created)


def conversation_of(path: Path) -> tuple[dict[str, Any], ...]:
    """The messages of a run of our own loop, those of the runs it went on with first.

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
