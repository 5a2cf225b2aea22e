"""Locks a state directory for one daemon, and records its last fleet and which database belongs to which fleet."""

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from ringfence.config.old_names import fleet_database
from ringfence.config.paths import make_private_dir
from ringfence.errors import UsageError
from ringfence.filesystem import replace_file
from ringfence.flock import try_lock

_LOCK = "daemon.lock"
_OWNER = "owner"


@contextmanager
def lock_state_directory(state: Path, file: Path) -> Iterator[None]:
    """Hold the lock of the state directory.

    Args:
        state: The state directory.
        file: The fleet's file. The error's advice depends on whether the other daemon runs the same fleet.

    Raises:
        UsageError: Another process holds the lock.
    """
    with held(state) as other:
        if other is not None:
            raise UsageError(why_taken(other, state, file))
        yield


def why_taken(other: str, state: Path, file: Path) -> str:
    """Return why no daemon is started beside a running one, and what to do, which depends on the running one's fleet.

    Args:
        other: The process id of the running daemon.
        state: The state directory.
        file: The file of the fleet that was to be started.
    """
    last_file = noted_file(state)
    if last_file is None or last_file == file.absolute():
        return (
            f"this fleet's daemon runs already (process {other}); `ringfence fleet reload` makes it reload its files, "
            "`ringfence fleet down` ends it"
        )
    return (
        f"another daemon (process {other}) has this state directory, for the fleet of {str(last_file)!r}; give this "
        f"fleet its own state directory, such as RINGFENCE_STATE_DIR={shlex.quote(str(state))}-2, for every command"
    )


@contextmanager
def held(state: Path) -> Iterator[str | None]:
    """Hold the lock of the state directory and yield None; if it is taken, yield the process id of its holder.

    The lock's file contains the process id of the holder, which empties the file when it ends normally.
    """
    path = make_private_dir(state / "fleet") / _LOCK
    with path.open("a+b") as file:
        if not try_lock(file.fileno(), fcntl.LOCK_EX, what=f"{str(path)!r}"):
            yield _holder(path)
            return
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield None
        file.truncate(0)


def has_died(state: Path, pid: int) -> bool:
    """Whether a process that held the lock of the state directory, and is gone, did not end normally."""
    return _holder(state / "fleet" / _LOCK) == str(pid)


def _holder(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(20).decode("ascii", "replace").strip()


def note_file(state: Path, file: Path) -> None:
    """Record the fleet's file, for commands that run without a daemon, and the owner of the first database."""
    folder = make_private_dir(state / "fleet")
    owner = _owner(folder) or _fleet_directory(file)
    replace_file(folder / _OWNER, os.fsencode(owner))
    replace_file(folder / "file", os.fsencode(file.absolute()))


def database_file(folder: Path, file: Path | None) -> Path:
    """Return the database of a fleet; no two fleets of one state directory share jobs, sessions or budgets.

    The first fleet has `fleet.db`; a fleet of another directory has a database that is named after the directory. A
    directory that no longer exists owns no database: its fleet has moved, and its jobs follow it to its next start.

    Args:
        folder: The `fleet` folder of the state directory.
        file: The fleet's file; None: the first fleet's.
    """
    first = fleet_database(folder)
    if file is None or _owner(folder) in (None, _fleet_directory(file)):
        return first
    return folder / f"fleet-{sha256(os.fsencode(_fleet_directory(file))).hexdigest()[:12]}.db"


def owns_first(folder: Path, file: Path) -> bool:
    """Whether the first database belongs to the fleet of a file."""
    return _owner(folder) == _fleet_directory(file)


def _owner(folder: Path) -> Path | None:
    """Return the directory of the fleet that owns the first database; None if no fleet does."""
    if not fleet_database(folder).exists():
        return None
    try:
        owner = Path(os.fsdecode((folder / _OWNER).read_bytes()))
    except FileNotFoundError:  # made by a version that had one database for all
        noted = noted_file(folder.parent)
        if noted is None:
            return None
        owner = _fleet_directory(noted)
    return owner if owner.is_dir() else None


def _fleet_directory(file: Path) -> Path:
    return file.absolute().parent.resolve()


def noted_file(state: Path) -> Path | None:
    """Return the file that the fleet was last started with; None if there was no fleet yet."""
    try:
        return Path(os.fsdecode((state / "fleet" / "file").read_bytes()))
    except FileNotFoundError:
        return None
