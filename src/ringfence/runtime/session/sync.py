"""Copies a session's files into a sandbox, and out of it as they grow, so that a crash loses at most one second."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import anyio
import anyio.to_thread

from ringfence.background_tasks import background_tasks
from ringfence.errors import RingfenceError, SandboxDied, SandboxFileError, UsageError
from ringfence.events import Emit, SessionKept, SessionLost, SessionResumed
from ringfence.frozen import frozen
from ringfence.runtime.base import Session
from ringfence.runtime.session.store import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILES,
    SessionRecord,
    SessionStore,
    checked_name,
    lock_session,
)
from ringfence.sandbox import Sandbox

_PULL_INTERVAL_S = 1.0
_LAST_PULL_S = 20.0
_PIECE_BYTES = 256 * 1024
_OVERLAP = 256
"""Number of bytes at the end of a saved file that must be the same inside; otherwise the file was rewritten."""


class SessionSync:
    """Synchronizes the files of a session between its store and a sandbox.

    Args:
        store: The store of the files.
        sandbox: The sandbox in which the CLI runs.
        folder: The CLI's own directory inside.
        patterns: Patterns of the files below that directory that are saved; `*` also matches slashes.
        max_bytes: The limit on all saved files together.
    """

    def __init__(
        self,
        store: SessionStore,
        sandbox: Sandbox,
        folder: str,
        patterns: Sequence[str],
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.problem = ""
        """Why some files could not be saved, or ""."""
        self._store = store
        self._sandbox = sandbox
        self._folder = folder.rstrip("/")
        self._patterns = patterns
        self._max_bytes = max_bytes
        self._has_changes = anyio.Event()

    def notify(self) -> None:
        """Note that the files may have grown."""
        self._has_changes.set()

    async def restore(self, names: Sequence[str] | None = None) -> None:
        """Write saved files inside, in order.

        Args:
            names: The files; None: all.

        Raises:
            SandboxFileError: There is no room for them.
        """
        for name in names if names is not None else await anyio.to_thread.run_sync(self._store.files):
            await self._sandbox.write_file(f"{self._folder}/{name}", self._pieces(name), mode=0o600)

    async def _pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield a saved file in pieces, as an agent may have made it as large as the limit."""
        async with await anyio.open_file(self._store.place(name), "rb") as file:
            while piece := await file.read(_PIECE_BYTES):
                yield piece

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Copy out growing files until the context is left, and then once more."""
        async with background_tasks() as tasks:
            stopped = anyio.Event()
            tasks.start_soon(self._pull_on_changes, stopped)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.move_on_after(_LAST_PULL_S, shield=True) as last:
                    # A concurrent pull would write the same files, and clear the problem of this one.
                    await stopped.wait()
                    await self._try_pull()
                if last.cancelled_caught:
                    self.problem = f"its last part could not be copied within {_LAST_PULL_S:g} s"

    async def report(self, emit: Emit, client_session_id: str = "") -> None:
        """Record what was saved, and the problem if some files were not.

        Args:
            emit: Records an event.
            client_session_id: The CLI's own id, if the files are of a single session.
        """
        sizes = await anyio.to_thread.run_sync(self._store.files)
        await emit(
            SessionKept(
                session_id=self._store.id,
                client_session_id=client_session_id,
                files=len(sizes),
                size_bytes=sum(sizes.values()),
                problem=self.problem,
            )
        )

    async def _pull_on_changes(self, stopped: anyio.Event) -> None:
        try:
            while True:
                await self._has_changes.wait()
                self._has_changes = anyio.Event()
                await anyio.sleep(_PULL_INTERVAL_S)
                await self._try_pull()
        finally:
            stopped.set()

    async def _try_pull(self) -> None:
        """Pull, and store an error as `problem`: it is never an error of the run."""
        try:
            await self.pull()
        except SandboxDied as exc:
            self.problem = f"the sandbox ended before its last part was copied: {exc}"
        except (RingfenceError, ValueError) as exc:
            self.problem = str(exc)

    async def pull(self) -> None:
        """Copy out changed files.

        Raises:
            RingfenceError: A file cannot be read inside, or cannot be written outside.
            ValueError: The files exceed the limit.
        """
        inside = await self._list()
        total = sum(inside.values())
        if total > self._max_bytes or len(inside) > MAX_FILES:
            raise ValueError(
                f"it has {len(inside)} files of {total} bytes; {MAX_FILES} files of {self._max_bytes} are kept"
            )
        kept = await anyio.to_thread.run_sync(self._store.make_room, inside, self._max_bytes)
        for name, size in inside.items():
            if size != kept.get(name):
                others = sum(kept.values()) - kept.get(name, 0)
                kept[name] = await self._update(name, kept.get(name, 0), self._max_bytes - others)
        self.problem = ""

    async def _update(self, name: str, kept: int, max_bytes: int) -> int:
        """Append new bytes of a file, or replace it if it was rewritten; return its new size."""
        overlap = await anyio.to_thread.run_sync(self._store.tail, name, _OVERLAP) if kept else b""
        is_appended = False
        if overlap:
            with self._store.appending(name) as file:
                is_appended = await self._copy(name, file, kept - len(overlap), overlap, max_bytes)
        if not is_appended:
            with self._store.replacing(name) as file:
                await self._copy(name, file, 0, b"", max_bytes)
        return await anyio.to_thread.run_sync(self._store.size, name)

    async def _copy(self, name: str, file: BinaryIO, offset: int, known: bytes, max_bytes: int) -> bool:
        """Write the bytes after `known` at `offset` inside; return False if `known` is not found there."""
        size = offset
        async with aclosing(self._sandbox.stream_file(f"{self._folder}/{name}", offset=offset)) as chunks:
            async for chunk in chunks:
                seen = chunk[: len(known)]
                if not known.startswith(seen):
                    return False
                known = known[len(seen) :]
                size += len(chunk)
                if size > max_bytes:
                    raise ValueError(f"{name!r} has grown beyond the {self._max_bytes} bytes that are kept")
                await anyio.to_thread.run_sync(file.write, chunk[len(seen) :])
        return not known

    async def _list(self) -> dict[str, int]:
        """Return the sizes of the files inside that should be saved."""
        found: dict[str, int] = {}
        folders = sorted({pattern.partition("/")[0] for pattern in self._patterns})
        for _ in range(MAX_FILES):
            if not folders:
                return found
            folder = folders.pop()
            try:
                entries = await self._sandbox.list_dir(f"{self._folder}/{folder}", limit=MAX_FILES)
            except SandboxFileError as exc:
                if exc.errno_name in ("ENOENT", "ENOTDIR"):
                    continue
                raise
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if entry.kind == "dir" and name.count("/") < MAX_DEPTH - 1:
                    folders.append(name)
                elif entry.kind == "file" and any(fnmatchcase(name, pattern) for pattern in self._patterns):
                    found[str(checked_name(name))] = entry.size
            if len(found) > MAX_FILES:
                return found
            if len(folders) > MAX_FILES:
                break
        raise ValueError(f"it has more than {MAX_FILES} directories")


@frozen
class SessionPlan:
    """The session that a run saves."""

    id: str
    """Ringfence's id. A new UUID for a session that is started or forked; the CLI uses it, too, if it accepts one."""
    client: str
    workspace: str
    state: Path
    """The state directory."""
    resumes: str | None = None
    """The session that is resumed: `id` itself, or another one, which does not change."""
    run: str = ""
    """The last run of that session."""
    differences: tuple[str, ...] = ()
    """The settings that have changed since that run."""


class RunSession:
    """The session of one run, which holds its lock. Made by `open_session`."""

    def __init__(self, plan: SessionPlan, store: SessionStore, resumed: SessionRecord | None) -> None:
        self.plan = plan
        self.session = Session(
            new_id=plan.id,
            resumed_id=resumed.client_session_id if resumed is not None else None,
            is_forked=plan.resumes not in (None, plan.id),
        )
        """The session for the CLI."""
        self._store = store
        self._sync: SessionSync | None = None
        self._known_as = ""

    @asynccontextmanager
    async def synchronized(
        self, sandbox: Sandbox, folder: str, patterns: Sequence[str], emit: Emit
    ) -> AsyncIterator[None]:
        """Restore the session's files inside, and save them while the context is open.

        Args:
            sandbox: The sandbox in which the CLI runs.
            folder: The CLI's own directory inside.
            patterns: Patterns of the files there that belong to the session.
            emit: Records an event.
        """
        sync = self._sync = SessionSync(self._store, sandbox, folder, patterns)
        plan = self.plan
        if self.session.resumed_id is not None:
            await sync.restore()
            await emit(
                SessionResumed(
                    session_id=plan.id,
                    run=plan.run,
                    is_forked=self.session.is_forked,
                    differences=list(plan.differences),
                )
            )
        try:
            async with sync.running():
                yield
        finally:
            if self._known_as:
                with anyio.CancelScope(shield=True):
                    await sync.report(emit, self._known_as)

    async def note_activity(self, client_session_id: str | None) -> None:
        """Note that the CLI was active, and its own id of the session once that is known."""
        if client_session_id and client_session_id != self._known_as:
            self._known_as = client_session_id
            record = SessionRecord(
                client=self.plan.client,
                client_session_id=client_session_id,
                workspace=self.plan.workspace,
            )
            await anyio.to_thread.run_sync(self._store.save, record)
        if self._sync is not None:
            self._sync.notify()

    async def restart(self, reason: str, emit: Emit) -> None:
        """Record that the CLI did not find the session, and start a new one."""
        lost_id = self.session.resumed_id or ""
        await emit(SessionLost(session_id=self.plan.id, client_session_id=lost_id, reason=reason))
        self.session = Session(new_id=str(uuid4()))


@contextmanager
def open_session(plan: SessionPlan) -> Iterator[RunSession]:
    """Lock a run's session, and copy the files of the session that it forks.

    Raises:
        UsageError: Another run holds it; or the session was not saved.
        RecordError: Its record cannot be read.
        InfrastructureFault: It cannot be written.
    """
    by = f"process {os.getpid()}"
    with lock_session(plan.id, by=by, state=plan.state) as store:
        resumed = None
        if plan.resumes == plan.id:
            resumed = _kept_record(store)
        elif plan.resumes is not None:
            with lock_session(plan.resumes, by=by, state=plan.state) as source:
                resumed = _kept_record(source)
                store.copy_from(source)
        yield RunSession(plan, store, resumed)


def _kept_record(store: SessionStore) -> SessionRecord:
    record = store.record()
    if record is None or not store.files():
        raise UsageError(
            f"nothing of session {store.id!r} was kept: its agent CLI ended before it wrote anything; leave out"
            " --continue and --resume to start a new session"
        )
    return record
