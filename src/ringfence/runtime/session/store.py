"""Stores the sessions of agent CLIs between runs, in `sessions/<id>/` in the state directory.

`session.json` names the CLI and its own id of the session; `files/` holds the files of the CLI's own directory, under
the same names; `lock` is held by the run that writes. The files come from inside and are never run or trusted here.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, RecordError, UsageError
from ringfence.filesystem import replace_file
from ringfence.flock import try_lock

MAX_FILES = 1000
MAX_BYTES = 512 * 1024**2
"""The limit on all files of a session together."""
MAX_DEPTH = 8

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}", re.ASCII)
_HOLDER_BYTES = 200
_NAME_BYTES = 255


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI that a session belongs to."""

    schema_version: int = 1
    client: str
    client_session_id: str
    """The CLI's own id of the session."""
    workspace: str


def sessions_dir(state: Path) -> Path:
    """Return the directory of all sessions in a state directory."""
    return state / "sessions"


class SessionStore:
    """The directory of one session. One run at a time writes to it; see `lock_session`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    @property
    def files_dir(self) -> Path:
        """The directory of the CLI's files."""
        return self.path / "files"

    def record(self) -> SessionRecord | None:
        """Return the session's record; None for a session that has not started.

        Raises:
            RecordError: It cannot be read.
        """
        path = self.path / "session.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=SessionRecord)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            raise RecordError(
                f"could not read {str(path)!r}: {exc}; leave out --resume to start a new session"
            ) from exc

    def save(self, record: SessionRecord) -> None:
        """Write the session's record, atomically and durably.

        Raises:
            InfrastructureFault: It cannot be written.
        """
        path = self.path / "session.json"
        with _writing(path):
            replace_file(path, msgspec.json.format(msgspec.json.encode(record)))

    def files(self) -> dict[str, int]:
        """Return the sizes of the CLI's files, by their paths below the CLI's own directory."""
        found = {}
        for path in sorted(self.files_dir.rglob("*")):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(self.files_dir))] = path.stat().st_size
        return found

    def place(self, name: str) -> Path:
        """Return the path of a file."""
        return self.files_dir / checked_name(name)

    def tail(self, name: str, size: int) -> bytes:
        """Return the last bytes of a file, at most `size`."""
        with self.place(name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read()

    def size(self, name: str) -> int:
        """Return the size of a file."""
        return self.place(name).stat().st_size

    @contextmanager
    def appending(self, name: str) -> Iterator[BinaryIO]:
        """Open a file to append to it.

        Raises:
            InfrastructureFault: It cannot be written.
        """
        path = self.place(name)
        with _writing(path), path.open("ab") as file:
            yield file

    @contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file, which replaces an existing one when the context is left without an error.

        Raises:
            InfrastructureFault: It cannot be written.
        """
        incoming = self.path / "incoming"
        try:
            with _writing(self.place(name)):
                with incoming.open("wb") as file:
                    yield file
                incoming.replace(self.place(name))
        finally:
            incoming.unlink(missing_ok=True)

    def make_room(self, inside: Mapping[str, int], max_bytes: int) -> dict[str, int]:
        """Remove files that the CLI no longer has, the oldest first, until the current files fit beside them.

        Args:
            inside: The sizes of the files that the CLI has.
            max_bytes: The limit on all files together.

        Returns:
            The remaining files, as `files` returns them.
        """
        kept = self.files()
        gone = sorted(kept.keys() - inside.keys(), key=lambda name: self.place(name).stat().st_mtime)
        whole = {**kept, **inside}
        total = sum(whole.values())
        for number, name in enumerate(gone):
            if total <= max_bytes and len(whole) - number <= MAX_FILES:
                break
            self._remove(self.place(name))
            total -= kept.pop(name)
        return kept

    def _remove(self, path: Path) -> None:
        with _writing(path):
            path.unlink()
        with suppress(OSError):  # not empty
            while (path := path.parent) != self.files_dir:
                path.rmdir()

    def copy_from(self, other: "SessionStore") -> None:
        """Copy the files of another session.

        Raises:
            InfrastructureFault: They could not be copied.
        """
        with _writing(self.files_dir):
            shutil.copytree(other.files_dir, self.files_dir, dirs_exist_ok=True, symlinks=True)


@contextmanager
def lock_session(session_id: str, *, by: str, state: Path) -> Iterator[SessionStore]:
    """Lock a session, which need not exist yet, for writing.

    Args:
        session_id: Ringfence's id of the session.
        by: The holder of the lock, named in errors of others.
        state: The state directory.

    Raises:
        UsageError: The id is malformed, or another run holds the session.
        InfrastructureFault: The lock cannot be created.
    """
    if not _ID.fullmatch(session_id):
        raise UsageError(f"{session_id!r} is not a session id; `ringfence session ls` lists the sessions")
    path = make_private_dir(sessions_dir(state) / session_id)
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureFault(f"could not open {str(path / 'lock')!r}: {exc.strerror}") from exc
    try:
        if not try_lock(lock, fcntl.LOCK_EX, what="a session"):
            holder = os.pread(lock, _HOLDER_BYTES, 0).decode("utf-8", "replace")
            raise UsageError(
                f"session {session_id!r} is in use by {holder}; wait for its end, or add --fork to start a session"
                " of its own"
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, by.encode(), 0)
        yield SessionStore(path)
    finally:
        os.close(lock)


def is_locked(path: Path) -> bool:
    """Return whether a run holds the session in `path` at this moment."""
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(lock, fcntl.LOCK_EX, what="a session")
    finally:
        os.close(lock)


def checked_name(name: str) -> PurePosixPath:
    """Check that a path is relative and stays below its directory, and return it.

    Raises:
        ValueError: It is not, or could lead elsewhere.
    """
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and len(os.fsencode(part)) <= _NAME_BYTES for part in parts)
    if not plain or "\0" in name or len(parts) > MAX_DEPTH:
        raise ValueError(f"{name!r} is not a plain relative path")
    return PurePosixPath(name)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        make_private_dir(path.parent)
        yield
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(path)!r}: {exc.strerror}") from exc
