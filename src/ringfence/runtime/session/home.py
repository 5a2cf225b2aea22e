"""Where a client's session lies between its sandboxes: `sessions/<id>/` in the state directory.

`session.json` says whose it is; `files/` holds what the client wrote below its own directory, under the same names;
`lock` is held by the run that writes. What is in the files came from inside, and is never run or believed here.
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

MAX_FILES = 1000
MAX_BYTES = 512 * 1024**2
"""Of a session's files together."""
MAX_DEPTH = 8

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}", re.ASCII)
_HOLDER_BYTES = 200
_NAME_BYTES = 255


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a session is."""

    schema_version: int = 1
    client: str
    client_session_id: str
    """As the client names it."""
    workspace: str


def sessions_dir(state: Path) -> Path:
    """Where the sessions of a state directory are."""
    return state / "sessions"


class SessionHome:
    """The directory of one session. Held by one run at a time; see `held_session`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    @property
    def files_dir(self) -> Path:
        """Where the client's files are."""
        return self.path / "files"

    def record(self) -> SessionRecord | None:
        """Whose it is; None for one that has not begun.

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
                f"could not read {str(path)!r}: {exc}; leave out --resume to begin anew"
            ) from exc

    def save(self, record: SessionRecord) -> None:
        """Write down whose it is, at once and lasting."""
        _replace(self.path / "session.json", msgspec.json.format(msgspec.json.encode(record)))

    def files(self) -> dict[str, int]:
        """The client's files and their sizes, by their paths below the client's own directory."""
        found = {}
        for path in sorted(self.files_dir.rglob("*")):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(self.files_dir))] = path.stat().st_size
        return found

    def place(self, name: str) -> Path:
        """Where a file is."""
        return self.files_dir / checked_name(name)

    def tail(self, name: str, size: int) -> bytes:
        """A file's last bytes, at most `size`."""
        with self.place(name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read()

    def open_for(self, name: str | None) -> BinaryIO:
        """A file to add to; None: the incoming one, empty.

        Raises:
            InfrastructureFault: It cannot be opened.
        """
        path = self.incoming if name is None else self.place(name)
        with _writing(path):
            return path.open("wb" if name is None else "ab")

    @property
    def incoming(self) -> Path:
        """Where a file that is brought whole is written first."""
        return self.path / "incoming"

    def take_incoming(self, name: str) -> None:
        """Put what was brought in the place of a file, at once."""
        with _writing(self.place(name)):
            self.incoming.replace(self.place(name))

    def drop_incoming(self) -> None:
        """Throw away what was brought and not put anywhere."""
        self.incoming.unlink(missing_ok=True)

    def size(self, name: str) -> int:
        """How many bytes a file has."""
        return self.place(name).stat().st_size

    def make_room(self, inside: Mapping[str, int], most_bytes: int) -> dict[str, int]:
        """Let go of files that the client has no more, the oldest first, until what it has now fits beside them.

        Args:
            inside: What the client has, with the sizes.
            most_bytes: Of all files together.

        Returns:
            What is left, as of `files`.
        """
        kept = self.files()
        gone = sorted(kept.keys() - inside.keys(), key=lambda name: self.place(name).stat().st_mtime)
        whole = {**kept, **inside}
        total = sum(whole.values())
        for number, name in enumerate(gone):
            if total <= most_bytes and len(whole) - number <= MAX_FILES:
                break
            self._let_go(self.place(name))
            total -= kept.pop(name)
        return kept

    def _let_go(self, path: Path) -> None:
        with _writing(path):
            path.unlink()
        with suppress(OSError):  # something else is in it
            while (path := path.parent) != self.files_dir:
                path.rmdir()

    def copy_from(self, other: "SessionHome") -> None:
        """Take over the files of another session.

        Raises:
            InfrastructureFault: They could not be copied.
        """
        with _writing(self.files_dir):
            shutil.copytree(other.files_dir, self.files_dir, dirs_exist_ok=True, symlinks=True)


@contextmanager
def held_session(session_id: str, *, by: str, state: Path) -> Iterator[SessionHome]:
    """Hold a session, which need not be there yet, as its one writer.

    Args:
        session_id: Ours.
        by: Who holds it, which others are told.
        state: The state directory.

    Raises:
        UsageError: It is no id, or another run holds the session.
        InfrastructureFault: The lock cannot be made.
    """
    if not _ID.fullmatch(session_id):
        raise UsageError(f"{session_id!r} is no session id; `ringfence session ls` lists the sessions")
    path = make_private_dir(sessions_dir(state) / session_id)
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureFault(f"could not open {str(path / 'lock')!r}: {exc.strerror}") from exc
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, _HOLDER_BYTES, 0).decode("utf-8", "replace")
            raise UsageError(
                f"session {session_id!r} is in use by {holder}; wait for its end, or add --fork for a session of"
                " its own"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, by.encode(), 0)
        yield SessionHome(path)
    finally:
        os.close(lock)


def is_held(path: Path) -> bool:
    """Whether a run holds the session in `path` just now."""
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def checked_name(name: str) -> PurePosixPath:
    """A relative path that leads nowhere else.

    Raises:
        ValueError: It could.
    """
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and len(os.fsencode(part)) <= _NAME_BYTES for part in parts)
    if not plain or "\0" in name or len(parts) > MAX_DEPTH:
        raise ValueError(f"{name!r} is no plain relative path")
    return PurePosixPath(name)


def _replace(path: Path, data: bytes) -> None:
    with _writing(path):
        temporary = path.with_name(".new")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        make_private_dir(path.parent)
        yield
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(path)!r}: {exc.strerror}") from exc
