"""The book of leases: a file for each, in the state directory, locked while its holder lives. No value is in it.

Who finds an entry whose lock is free knows that its holder died, and revokes what that left.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.flock import try_lock

_LIMIT_BYTES = 64 * 1024
_HALF_WRITTEN_S = 60.0
_FOLDER = "leases"
_ENDING = ".json"
_PARTIAL = ".partial"


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a lease without its secret."""

    id: str
    name: str
    source: str
    pid: int
    granted_at: float
    """Seconds since 1970."""
    expires_at: float | None = None
    run: str = ""
    revoke: tuple[str, ...] = ()
    timeout_s: float = 30.0


@dataclass
class LeaseEntry:
    """The holder's end of an entry."""

    path: Path
    record: LeaseRecord
    _descriptor: int = field(repr=False)
    is_closed: bool = False

    def update(self, **changes: Any) -> None:
        """Write what has changed.

        Raises:
            InfrastructureFault: It cannot be written.
        """
        self.record = msgspec.structs.replace(self.record, **changes)
        try:
            self.write()
        except OSError as exc:
            raise _unwritten(self.path, exc) from exc

    def write(self) -> None:
        """Write the record over the old one, in one piece: never shorter, so that nobody reads half of each."""
        content = msgspec.json.encode(self.record)
        os.pwrite(self._descriptor, content.ljust(os.fstat(self._descriptor).st_size), 0)

    def close(self) -> None:
        """Take it out of the book."""
        if not self.is_closed:
            self.is_closed = True
            with suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)


def open_entry(
    state: Path, *, name: str, source: str, run: str, revoke: Sequence[str], timeout_s: float
) -> LeaseEntry:
    """Enter a lease.

    Args:
        state: The state directory.
        name: Of the secret.
        source: Where it comes from, in a word.
        run: The run it is for.
        revoke: Program and arguments that revoke it.
        timeout_s: How long that may take.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    lease = secrets.token_hex(8)
    record = LeaseRecord(
        id=lease,
        name=name,
        source=source,
        pid=os.getpid(),
        granted_at=time.time(),
        run=run,
        revoke=tuple(revoke),
        timeout_s=timeout_s,
    )
    path = state / _FOLDER / f"{lease}{_ENDING}"
    try:
        partial = make_private_dir(path.parent) / f"{lease}{_PARTIAL}"
        descriptor = os.open(
            partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        entry = LeaseEntry(path, record, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            entry.write()
            partial.rename(path)
        except OSError:
            os.close(descriptor)
            partial.unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise _unwritten(path, exc) from exc
    return entry


def living(state: Path) -> list[LeaseRecord]:
    """The leases whose holders live, the oldest first."""
    found = [record for _, record, is_alive in _entries(state) if is_alive and record is not None]
    return sorted(found, key=lambda record: (record.granted_at, record.id))


def take_the_dead(state: Path) -> list[LeaseRecord]:
    """Take the entries whose holders died out of the book; what is returned is for the caller to revoke."""
    dead = []
    for path, record, is_alive in _entries(state):
        if not is_alive:
            path.unlink(missing_ok=True)
            dead += [record] if record is not None else []
    with suppress(OSError):
        for partial in (state / _FOLDER).glob(f"*{_PARTIAL}"):
            if time.time() - partial.stat().st_mtime > _HALF_WRITTEN_S:
                partial.unlink(missing_ok=True)
    return dead


def _entries(state: Path) -> Iterator[tuple[Path, LeaseRecord | None, bool]]:
    """Each entry, what it says if that can be read, and whether its holder lives."""
    for path in sorted((state / _FOLDER).glob(f"*{_ENDING}")):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # given back meanwhile
            continue
        try:
            is_alive = not try_lock(descriptor, fcntl.LOCK_EX, what=str(path))
            if not is_alive and os.fstat(descriptor).st_nlink == 0:
                continue
            yield path, _decoded(os.pread(descriptor, _LIMIT_BYTES, 0)), is_alive
        finally:
            os.close(descriptor)


def _decoded(content: bytes) -> LeaseRecord | None:
    try:
        return msgspec.json.decode(content, type=LeaseRecord)
    except msgspec.MsgspecError:
        return None


def _unwritten(path: Path, exc: OSError) -> InfrastructureFault:
    return InfrastructureFault(
        f"could not write {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
    )
