"""Whose a state directory is: the daemon that has it, the fleet it was last started for, and each fleet's database."""

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
def exclusive(state: Path, file: Path) -> Iterator[None]:
    """Hold the state directory's fleet.

    Args:
        state: The state directory.
        file: The fleet's, for advice: whose daemon the other one is decides what can be done.

    Raises:
        UsageError: Another process does.
    """
    with held(state) as other:
        if other is not None:
            raise UsageError(why_taken(other, state, file))
        yield


def why_taken(other: str, state: Path, file: Path) -> str:
    """Why no daemon is started where another one runs, and what to do: that one may be somebody else's.

    Args:
        other: Its process.
        state: The state directory.
        file: The fleet that was to be started.
    """
    theirs = noted_file(state)
    if theirs is None or theirs == file.absolute():
        return (
            f"this fleet's daemon runs already (process {other}); `ringfence fleet reload` has it read its files again, "
            "`ringfence fleet down` ends it"
        )
    return (
        f"another daemon (process {other}) has this state directory, for the fleet of {str(theirs)!r}; give this one "
        f"a state directory of its own, such as RINGFENCE_STATE_DIR={shlex.quote(str(state))}-2, for every command"
    )


@contextmanager
def held(state: Path) -> Iterator[str | None]:
    """Hold the state directory's fleet if nobody does; else the process that does.

    The file of the lock names the holder; who ends in good order leaves it empty.
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
    """Whether a process that held the state directory's fleet, and is gone, did not end in good order."""
    return _holder(state / "fleet" / _LOCK) == str(pid)


def _holder(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(20).decode("ascii", "replace").strip()


def note_file(state: Path, file: Path) -> None:
    """Note the fleet's file, for those who look when no daemon runs; and whose the first database is."""
    folder = make_private_dir(state / "fleet")
    owner = _owner(folder) or _directory(file)
    replace_file(folder / _OWNER, os.fsencode(owner))
    replace_file(folder / "file", os.fsencode(file.absolute()))


def database_file(folder: Path, file: Path | None) -> Path:
    """The own database of a fleet, so that no two of one state directory share jobs, sessions or budgets.

    The first fleet has `fleet.db`; a fleet of another directory has one that is named for it. A directory that is gone
    owns nothing: its fleet has moved, and takes its jobs along to where it is started next.

    Args:
        folder: The `fleet` folder of the state directory.
        file: The fleet's file; None: the first fleet's.
    """
    first = fleet_database(folder)
    if file is None or _owner(folder) in (None, _directory(file)):
        return first
    return folder / f"fleet-{sha256(os.fsencode(_directory(file))).hexdigest()[:12]}.db"


def owns_first(folder: Path, file: Path) -> bool:
    """Whether the first database is that of a file's fleet."""
    return _owner(folder) == _directory(file)


def _owner(folder: Path) -> Path | None:
    """The directory of the fleet that has the first database; None: it is nobody's."""
    if not fleet_database(folder).exists():
        return None
    try:
        owner = Path(os.fsdecode((folder / _OWNER).read_bytes()))
    except FileNotFoundError:  # made by a version that had one database for all
        noted = noted_file(folder.parent)
        if noted is None:
            return None
        owner = _directory(noted)
    return owner if owner.is_dir() else None


def _directory(file: Path) -> Path:
    return file.absolute().parent.resolve()


def noted_file(state: Path) -> Path | None:
    """The file that the fleet was last started with; None: there never was one."""
    try:
        return Path(os.fsdecode((state / "fleet" / "file").read_bytes()))
    except FileNotFoundError:
        return None
