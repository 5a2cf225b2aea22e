"""Lease files: one file per lease in the state directory, without the secret, locked as long as its holder lives.

A file whose lock is free belongs to a holder that died; the process that finds it revokes the secret.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.flock import try_lock
from ringfence.secret.credential import KnownSecret

_LIMIT_BYTES = 64 * 1024
_STALE_PARTIAL_S = 60.0
_FOLDER = "leases"
_SUFFIX = ".json"
_PARTIAL = ".partial"


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A lease without its secret."""

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
class LeaseFile:
    """The holder's handle to its lease file."""

    path: Path
    record: LeaseRecord
    _descriptor: int = field(repr=False)
    is_closed: bool = False

    def update(self, **changes: Any) -> None:
        """Change fields of the record.

        Raises:
            InfrastructureFault: The file cannot be written.
        """
        self.record = msgspec.structs.replace(self.record, **changes)
        try:
            self.write()
        except OSError as exc:
            raise _write_error(self.path, exc) from exc

    def write(self) -> None:
        """Write the record over the old one, padded to its length, in one call, so that no reader sees a mixture."""
        content = msgspec.json.encode(self.record)
        os.pwrite(self._descriptor, content.ljust(os.fstat(self._descriptor).st_size), 0)

    def close(self) -> None:
        """Remove the file."""
        if not self.is_closed:
            self.is_closed = True
            with suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)


def create_lease_file(state: Path, secret: KnownSecret, run: str) -> LeaseFile:
    """Create and lock the file of a new lease in the state directory.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    lease = secrets.token_hex(8)
    record = LeaseRecord(
        id=lease,
        name=secret.name,
        source=str(secret.reference),
        pid=os.getpid(),
        granted_at=time.time(),
        run=run,
        revoke=secret.reference.revoke or (),
        timeout_s=secret.reference.timeout,
    )
    path = state / _FOLDER / f"{lease}{_SUFFIX}"
    try:
        partial = make_private_dir(path.parent) / f"{lease}{_PARTIAL}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(partial, flags, 0o600)
        file = LeaseFile(path, record, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            file.write()
            partial.rename(path)
        except OSError:
            os.close(descriptor)
            partial.unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise _write_error(path, exc) from exc
    return file


def active_leases(state: Path) -> list[LeaseRecord]:
    """Return the leases whose holders live, the oldest first."""
    records = [record for _, record, is_alive in _lease_files(state) if is_alive and record is not None]
    return sorted(records, key=lambda record: (record.granted_at, record.id))


def remove_abandoned(state: Path) -> list[LeaseRecord]:
    """Remove the files of holders that died; the caller must revoke the returned leases."""
    abandoned = []
    for path, record, is_alive in _lease_files(state):
        if not is_alive:
            path.unlink(missing_ok=True)
            abandoned += [record] if record is not None else []
    with suppress(OSError):
        for partial in (state / _FOLDER).glob(f"*{_PARTIAL}"):
            if time.time() - partial.stat().st_mtime > _STALE_PARTIAL_S:
                partial.unlink(missing_ok=True)
    return abandoned


def _lease_files(state: Path) -> Iterator[tuple[Path, LeaseRecord | None, bool]]:
    """Yield the path of each file, its record if it can be read, and whether its holder lives."""
    for path in sorted((state / _FOLDER).glob(f"*{_SUFFIX}")):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # the lease was released meanwhile
            continue
        try:
            is_alive = not try_lock(descriptor, fcntl.LOCK_EX, what=str(path))
            if not is_alive and os.fstat(descriptor).st_nlink == 0:
                continue
            yield path, _decode(os.pread(descriptor, _LIMIT_BYTES, 0)), is_alive
        finally:
            os.close(descriptor)


def _decode(content: bytes) -> LeaseRecord | None:
    try:
        return msgspec.json.decode(content, type=LeaseRecord)
    except msgspec.MsgspecError:
        return None


def _write_error(path: Path, exc: OSError) -> InfrastructureFault:
    return InfrastructureFault(
        f"could not write {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
    )
