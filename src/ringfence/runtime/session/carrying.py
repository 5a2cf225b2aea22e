"""A client's session over one run: held, put inside, brought out as it grows, told."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread

from ringfence.errors import UsageError
from ringfence.events import Event, SessionKept, SessionLost, SessionResumed
from ringfence.frozen import frozen
from ringfence.runtime.base import Emit, Session
from ringfence.runtime.session.home import SessionHome, SessionRecord, held_session
from ringfence.runtime.session.keeper import SessionKeeper
from ringfence.sandbox import Sandbox


@frozen
class SessionPlan:
    """Which session a run keeps."""

    id: str
    """Ours. For one that is begun or forked a new UUID, which the client gets for its own where it takes one."""
    client: str
    workspace: str
    state: Path
    """The state directory."""
    resumes: str | None = None
    """The session that is gone on with: `id` itself, or another one, which stays as it is."""
    run: str = ""
    """The last run of that one."""
    differences: tuple[str, ...] = ()
    """What is not as it was then."""


class CarriedSession:
    """A session that is held. Made by `carried`."""

    def __init__(self, plan: SessionPlan, home: SessionHome, resumed: SessionRecord | None) -> None:
        self.plan = plan
        self.session = Session(
            new_id=plan.id,
            resumed_id=resumed.client_session_id if resumed is not None else None,
            is_forked=plan.resumes not in (None, plan.id),
        )
        """What the client is told."""
        self._home = home
        self._keeper: SessionKeeper | None = None
        self._emit: Emit | None = None
        self._known_as = ""

    @asynccontextmanager
    async def inside(
        self, sandbox: Sandbox, client_dir: str, patterns: Sequence[str], emit: Emit
    ) -> AsyncIterator[None]:
        """Have the session's files in a sandbox.

        Args:
            sandbox: Where the client runs.
            client_dir: Its own directory inside.
            patterns: Which files there are the session's.
            emit: Records an event.
        """
        keeper = SessionKeeper(self._home, sandbox, client_dir, patterns)
        self._keeper, self._emit = keeper, emit
        if self.session.resumed_id is not None:
            await keeper.restore()
            await emit(self._resumed())
        try:
            async with keeper.following():
                yield
        finally:
            if self._known_as:
                with anyio.CancelScope(shield=True):
                    await emit(self._kept(keeper.problem))

    async def took(self, client_session_id: str | None) -> None:
        """Say that the client did something, and what it calls its session, if that is known by now."""
        if client_session_id and client_session_id != self._known_as:
            self._known_as = client_session_id
            plan = self.plan
            record = SessionRecord(
                client=plan.client,
                client_session_id=client_session_id,
                workspace=plan.workspace,
            )
            await anyio.to_thread.run_sync(self._home.save, record)
        if self._keeper is not None:
            self._keeper.touch()

    async def lost(self, reason: str) -> None:
        """Say that the client did not find the session; what is begun now is a new one."""
        assert self._emit is not None
        gone = self.session.resumed_id or ""
        await self._emit(SessionLost(session_id=self.plan.id, client_session_id=gone, reason=reason))
        self.session = Session(new_id=str(uuid4()))

    def _resumed(self) -> Event:
        return SessionResumed(
            session_id=self.plan.id,
            run=self.plan.run,
            is_forked=self.session.is_forked,
            differences=list(self.plan.differences),
        )

    def _kept(self, problem: str) -> Event:
        sizes = self._home.files()
        return SessionKept(
            session_id=self.plan.id,
            client_session_id=self._known_as,
            files=len(sizes),
            size_bytes=sum(sizes.values()),
            problem=problem,
        )


@contextmanager
def carried(plan: SessionPlan) -> Iterator[CarriedSession]:
    """Hold a run's session, and take over the files of the one that it forks.

    Raises:
        UsageError: Another run holds it; or nothing of the session was kept.
        RecordError: What says whose it is cannot be read.
        InfrastructureFault: It cannot be written.
    """
    by = f"process {os.getpid()}"
    with held_session(plan.id, by=by, state=plan.state) as home:
        if plan.resumes is None:
            yield CarriedSession(plan, home, None)
            return
        if plan.resumes == plan.id:
            resumed = _begun(home)
        else:
            with held_session(plan.resumes, by=by, state=plan.state) as source:
                resumed = _begun(source)
                home.copy_from(source)
        yield CarriedSession(plan, home, resumed)


def _begun(home: SessionHome) -> SessionRecord:
    record = home.record()
    if record is None or not home.files():
        raise UsageError(
            f"nothing of session {home.id!r} was kept: its client ended before it wrote anything; leave out --continue"
            " and --resume to begin anew"
        )
    return record
