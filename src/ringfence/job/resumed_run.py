"""Finds, checks and locks the run that another run resumes: its session, conversation and changes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.config.paths import state_dir
from ringfence.errors import UsageError
from ringfence.events import Event, JobCreated
from ringfence.frozen import frozen
from ringfence.job.interrupted_runs import completed_work
from ringfence.journal import creation_of, is_alive, matching_runs, read, resolve, run_dirs
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    diff_run,
    has_record,
    is_applied,
    load_record,
    open_store,
)

if TYPE_CHECKING:
    from ringfence.job.request import AgentRequest
    from ringfence.runtime.session import RunSession

_LOOK_BACK = 200
_MOST_RUNS = 100
_MOST_DIFFERENCES = 20
_SHOWN = 60
_NO_DIFFERENCES = ("run.model", "run.runtime")
"""Settings that are not compared: the first is compared as `model`; the second is fixed by the session."""
_NO_AGENT = frozenset({"", "exec", "shell", "standing", "claude", "codex", "imported"})
"""Runtimes of runs that cannot be resumed; a user's own agent has no name."""


@frozen
class ResumeRequest:
    """The session that a run resumes."""

    reference: str | None = None
    """A run or session; None: the session of the last run on the workspace."""
    is_forked: bool = False
    """Whether the run starts a separate session from there."""


@frozen
class ResumedRun:
    """The run to resume; empty for a run that starts a new session."""

    run_id: str | None = None
    session_id: str | None = None
    conversation: tuple[dict[str, Any], ...] = ()
    created: JobCreated | None = None
    """The request of the earlier run."""
    is_forked: bool = False


def resume_request(*, continue_: bool, resume: str | None, fork: bool) -> ResumeRequest | None:
    """Return the request for the options `--continue`, `--resume` and `--fork`; None for a new session.

    Raises:
        UsageError: They contradict each other.
    """
    if continue_ and resume is not None:
        raise UsageError("--continue is the last run's session, and --resume names one; give one of the two")
    if fork and not continue_ and resume is None:
        raise UsageError("--fork goes with --continue or --resume, which say what is forked")
    if not continue_ and resume is None:
        return None
    return ResumeRequest(None if resume == "last" else resume, fork)


async def find_resumed(request: ResumeRequest | None, workspace: Path) -> ResumedRun:
    """Find the run to resume; empty if there is no request.

    Raises:
        UsageError: There is no such run, or it has not ended.
    """
    import anyio.to_thread

    if request is None:
        return ResumedRun()
    if request.reference is None:
        earlier = await anyio.to_thread.run_sync(last_run_of, workspace)
    else:
        earlier = await anyio.to_thread.run_sync(run_of, request.reference)
    return replace(earlier, is_forked=request.is_forked)


def last_run_of(workspace: Path) -> ResumedRun:
    """Find the newest agent's run on `workspace`, skipping runs of agent CLIs without a saved session.

    Raises:
        UsageError: There is no such run, or it has not ended.
        RecordError: The file that assigns sessions cannot be read.
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


def run_of(reference: str) -> ResumedRun:
    """Find the run that a reference names.

    Args:
        reference: A run's id or the beginning of one; or a session's id or the beginning of one: its newest run.

    Raises:
        UsageError: It names no run or several, or the run has not ended, or was not an agent's.
    """
    if not matching_runs(reference):
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
    """The error for a reference that is neither a run nor the session of one."""
    from ringfence.job.agent_cli import terminal_session

    found = terminal_session(reference, state_dir())
    if found is None:
        return UsageError(
            f"there is no unattended session {reference!r}, and there is no run {reference!r}; "
            "`ringfence runs ls` lists the runs"
        )
    program, session = found
    step = f"`ringfence {program} {'--resume' if program == 'claude' else 'resume'} {session}`"
    return UsageError(
        f"session {session!r} is one on a terminal; go on with it there, on its workspace, by {step}"
    )


def _newest_of(session: str) -> tuple[Path, JobCreated] | None:
    """Find the newest run of the session whose id begins with the reference.

    Raises:
        UsageError: Several sessions match.
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
    """Whether its session can be resumed; a session of the runtime `api` is in the record."""
    from ringfence.runtime.session.store import SessionStore, sessions_dir

    if created.runtime == "api":
        return True
    home = SessionStore(sessions_dir(state_dir()) / created.session_id)
    return home.record() is not None and bool(home.files())


def _from(path: Path, created: JobCreated) -> ResumedRun:
    if is_alive(path):
        raise UsageError(f"run {path.name!r} is still running; wait until it has ended, then resume it")
    # An agent CLI saves its session itself; earlier runs of the session may be gone.
    conversation = conversation_of(path) if created.runtime == "api" else ()
    return ResumedRun(path.name, created.session_id, conversation, created)


def conversation_of(path: Path) -> tuple[dict[str, Any], ...]:
    """Return the messages of a run of the runtime `api`, preceded by those of the runs that it resumed.

    Raises:
        RecordError: A record of the chain is gone or damaged.
    """
    from ringfence.runtime.conversation import Conversation

    chain: list[list[Event]] = []
    for _ in range(_MOST_RUNS):
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


async def unapplied_work(run_id: str) -> WorkRecord | None:
    """Return the changes of a run in a clone that were not applied to the workspace; None if there are none.

    Raises:
        RecordError: A record of the chain is gone or damaged.
        UsageError: The run has not ended.
    """
    path = resolve(run_id)
    while not has_record(path):  # it ended before it had a workspace, so use the run that it resumed
        created = creation_of(path)
        if created is None or created.continues is None:
            return None
        path = resolve(created.continues)
    if load_record(path).mode != "clone":
        return None
    record, _ = await completed_work(path)
    if await is_applied(record, state_dir()):
        return None
    return record if (await diff_run(record, open_store(record, state_dir()))).files else None


@contextmanager
def locked_session(
    earlier: ResumedRun, agent: "AgentRequest", configuration: Mapping[str, Any], workspace: Path
) -> "Iterator[RunSession | None]":
    """Lock the session of an agent CLI; sessions of other runtimes are in the record.

    Args:
        earlier: The run that is resumed.
        agent: The agent that resumes it.
        configuration: Its settings, to name those that differ.
        workspace: The directory in which it works.

    Raises:
        UsageError: Another run uses it, it belongs to another workspace or runtime, or it was not saved.
        InfrastructureFault: It cannot be written.
    """
    from uuid import uuid4

    from ringfence.runtime.session import SessionPlan, open_session

    changes: list[str] = []
    if earlier.created is not None:
        check_context(earlier.created, workspace=workspace, runtime=agent.runtime)
        changes = differences(earlier.created, model=agent.model, configuration=configuration)
    if agent.runtime == "api":
        yield None
        return
    is_new = earlier.session_id is None or earlier.is_forked
    plan = SessionPlan(
        id=str(uuid4()) if is_new else str(earlier.session_id),
        client=agent.runtime,
        workspace=str(workspace),
        state=state_dir(),
        resumes=earlier.session_id,
        run=earlier.run_id or "",
        differences=tuple(changes),
    )
    with open_session(plan) as session:
        yield session


def check_context(earlier: JobCreated, *, workspace: Path, runtime: str) -> None:
    """Check that a session is resumed on its own workspace and by its own runtime.

    Raises:
        UsageError: The workspace or the runtime is a different one.
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
    """Settings that differ from an earlier run's, such as `limits.turns: was 60, is 5`. At most 20, each short."""
    before, now = dict(_leaves(earlier.configuration)), dict(_leaves(configuration))
    before["model"], now["model"] = earlier.model, model
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    lines = [
        f"{name}: was {_short(before.get(name))}, is {_short(now.get(name))}"
        for name in names
        if name not in _NO_DIFFERENCES and not name.startswith("labels.")
    ]
    more = len(lines) - _MOST_DIFFERENCES
    return [*lines[:_MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]


def _leaves(configuration: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in configuration.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _short(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
